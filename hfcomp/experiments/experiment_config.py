"""Fields of an experiment: everything in a recipe except the fields of its trainer's config."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from hfcomp.merging.choice import TOLERANCE, Rule
from hfcomp.negatives.concreteness import HOW_TO_GET
from hfcomp.reading import expand_variables, nearest
from hfcomp.reporting.pages.items import DEFAULT_PAGE
from hfcomp.schemas import Strict, plain_name
from hfcomp.statistics.bootstrap import FEWEST_SEEDS

SANDBOX = "sandbox"
SANDBOX_MODELS = {SANDBOX: "clip", "sandbox-siglip": "siglip"}  # architectures of the sandbox bases
RANDOM_MODELS = ("vit_b32", "vit_tiny")
NOT_SET = "which is not set. Set it, or"
SAME_BATCH = "same-batch"
STATIC_MARGIN = "static-margin"
HUMAN = "human"
# The controls, with their color and marker in every figure.
STYLES = {
    "plain": ("#56B4E9", "s"),
    SAME_BATCH: ("#0072B2", "D"),
    STATIC_MARGIN: ("#000000", "P"),
    "shuffled": ("#CC79A7", "^"),
    "random-spans": ("#E69F00", "<"),
    "equal-images": ("#009E73", "v"),
}
CONTROLS = tuple(STYLES)
# Fields in which $NAME is replaced by an environment variable. The only other such field is evaluation_data.
PATH_FIELDS = (
    *("dataset", "replay_dataset", "evaluation_dataset", "clip_vocabulary"),
    *("concreteness_ratings", "keyword_table", "captions_file", "blind_captions"),
)


def _as_list(controls: Any) -> Any:
    # Users may write `controls:` without a value, `none`, or a single name instead of a list.
    names = [controls] if isinstance(controls, str) else controls
    return [] if names in (None, ["none"]) else names


def _check_kinds(names: list[str]) -> list[str]:
    from hfcomp.sandbox import KINDS

    for name in names:
        if name not in KINDS:
            raise ValueError(f"the sandbox has no kind {name!r}.{nearest(name, KINDS)} Known: {', '.join(KINDS)}.")
    return names


def distinct(values: list[Any]) -> list[Any]:
    """Raises for a value that is listed twice."""
    # Compares types too, because 1 equals True in Python, and both may be choices in a search.
    kinds = [(type(value), value) for value in values]
    for number, kind in enumerate(kinds):
        if kind in kinds[:number]:
            raise ValueError(f"{kind[1]!r} is listed twice. Remove one.")
    return values


def _check_seed_count(seeds: list[int]) -> list[int]:
    # With one seed, intervals are over images. The spread of two seeds is too uncertain for an interval over seeds.
    if 1 < len(seeds) < FEWEST_SEEDS:
        raise ValueError(
            f"found two seeds, {seeds[0]} and {seeds[1]}: too few for an interval over seeds. Remove one, or add a "
            "third."
        )
    return seeds


Fraction = Annotated[float, Field(ge=0, le=1)]
Seeds = Annotated[
    list[NonNegativeInt], Field(min_length=1), AfterValidator(distinct), AfterValidator(_check_seed_count)
]


class ExperimentConfig(Strict):
    """The fields of an experiment. All other fields of a recipe belong to its trainer's config.

    A recipe is one flat YAML mapping with both kinds of fields. `batch_size` is the contrastive batch over all
    processes, so a recipe gives the same batches on one process and on several.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    objective: str
    """Trainer class as module:class; your own classes work too."""
    method: Annotated[str, plain_name("base", "evaluation", *CONTROLS)]
    """Name of the method in tables and folders."""
    dataset: str
    """'sandbox', or a folder, file or Hub id whose columns follow the column format (docs/datasets.md)."""
    batch_size: PositiveInt
    """Rows per contrastive batch, over all processes."""
    max_batch_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """Largest fraction of the training images that one batch may show, neighbors included. A larger batch_size in the
    recipe is lowered to it; one on the command line is kept."""
    model: str | None = None
    """Hub id or folder of the base model. Unset: a model that needs no download, see `fresh_model`."""
    fresh_model: Literal[*SANDBOX_MODELS, *RANDOM_MODELS] = SANDBOX
    """Base model if --model is unset: 'sandbox' and 'sandbox-siglip' are the tiny models that ship with hfcomp,
    'vit_b32' and 'vit_tiny' are CLIP models with random weights."""
    clip_vocabulary: str | None = None
    """Folder with CLIP's vocab.json and merges.txt, for CLIP models with random weights."""
    dataset_config: str | None = None
    """Configuration of a Hub dataset."""
    dataset_split: str = "train"
    """Split to train on."""
    dataset_filter: str | None = None
    """Condition column=value: only matching rows are used, the others are counted."""
    captions: Literal["longest", "first", "all", "drawn"] = "longest"
    """Caption to use if a row has a list of them: the 'longest', the 'first', 'all' (each becomes a row with the
    image), or one 'drawn' every epoch."""
    captions_file: str | None = None
    """JSON, JSON Lines, CSV or Parquet file of captions, joined by key; rows without one are counted and left out."""
    key_column: str | None = None
    """Column of the dataset with the keys, for example json.url. Defaults to __key__, which WebDataset shards have."""
    captions_columns: str | None = None
    """Key and caption columns of captions_file. Defaults to key,caption."""
    dataset_rows: PositiveInt = 8000
    """Number of rows to generate, for the sandbox."""
    negative_kinds: Annotated[list[str], AfterValidator(_check_kinds)] | None = None
    """Kinds of negatives in the sandbox (swap_att, ...). Unset: its default mixture."""
    edit_noise: Fraction = 0.0
    """Fraction of the sandbox's negative images whose edit went wrong, 0 to 1."""
    edit_noise_step: bool = False
    """Apply edit_noise only to sizes, numbers, relations and 'plain', with its full probability: with edit_noise 1,
    edits of abstract words never show."""
    caption_noise: Fraction = 0.0
    """Fraction of the sandbox's captions that are wrong, 0 to 1."""
    false_negatives: Fraction = 0.0
    """Fraction of the sandbox's negative captions that are in fact true, 0 to 1."""
    ratings: Literal["bands", HUMAN, "synthetic"] = "bands"
    """Concreteness of the sandbox's keywords: 'bands' (our bands, in the order of human norms), 'human' (from
    concreteness_ratings) or 'synthetic' (made up)."""
    keyword_negatives: list[str] | None = None
    """Concepts (object, color, location, size, or those of keyword_table) to make negatives from for each caption.
    Replaces the dataset's own negatives."""
    keyword_table: str | None = None
    """YAML file with your own concepts and keywords: a path, or the name of a file next to the recipe. Unset: Table 6
    of the paper."""
    keyword_matching: Literal["paper", "extended"] = "paper"
    """Keyword matching: 'paper', or 'extended', which also handles capitals, plurals and articles."""
    keyword_captions_only: bool = False
    """Train only on captions that contain a keyword of keyword_negatives; the others are counted."""
    hard_images: NonNegativeInt = 0
    """Number of nearest images per image, by the base model's embeddings, that num_neighbors draws from. 0: use the
    dataset's column neighbor_ids."""
    concreteness_ratings: str | None = None
    """Norms file of Brysbaert et al. 2014, joined to the negatives' keywords. With the sandbox's own negatives, it
    adds a separate run of the method with human ratings; with ratings: human, the method itself uses it."""
    concept_parser: str | None = None
    """Parser ('rules' or spacy:NAME) that extracts concepts from captions, for C2LIP. A dataset with a column concepts
    keeps its own. `hfcomp build concepts` extracts them once, on several processes."""
    streaming: bool = False
    """Read the training set during training, without a copy on disk: a Hub id, or a folder of WebDataset shards or
    Parquet files. Needs max_steps."""
    replay_dataset: str | None = None
    """General dataset whose rows are added to every batch of all models, in the share that replay_fraction sets:
    'sandbox' for general scenes, or a folder, file or Hub id with the columns image and caption."""
    replay_config: str | None = None
    """Configuration of replay_dataset on the Hub."""
    replay_split: str = "train"
    """Split of replay_dataset, or a slice such as train[:100000]."""
    replay_column_names: dict[str, str] | None = None
    """Column mapping for replay_dataset, for example image=jpg,caption=txt (hfcomp's name first)."""
    controls: Annotated[list[Literal[CONTROLS]], BeforeValidator(_as_list)] = list(CONTROLS)
    """Additional runs from the same base, with the same positives and steps as the method: plain (InfoNCE on the
    positives), same-batch (InfoNCE that also uses the negatives), static-margin (the method with the same margin for
    every pair), shuffled (the method with each negative moved to another row), random-spans (the method with random
    word spans instead of phrases), equal-images (plain with the same number of images as the method); or none."""
    seeds: Seeds | None = None
    """Seeds to train the method and the controls with, one or at least three, for example 42 43 44. The report has
    means over seeds, with intervals for other images and other seeds. Unset: the value of `seed`."""
    arms_at_once: PositiveInt = 1
    """Number of models to train at the same time, each in a process with its share of the threads. Only on a CPU and
    in a run with one process. Faster if one thread is nearly as fast as all, as with the sandbox's tiny models."""
    evaluation: Literal[SANDBOX, "sandbox+benchmarks", "benchmarks", "own"] = SANDBOX
    """Evaluation data: 'sandbox', 'benchmarks', 'sandbox+benchmarks' for both, or 'own' for retrieval and caption
    choice on your own dataset."""
    evaluation_benchmarks: list[str] = []
    """For 'benchmarks': names as listed by `hfcomp evaluate --list`."""
    evaluation_data: list[str] = []
    """For 'benchmarks': local data folders as NAME=DIR; the other benchmarks are downloaded from the Hub."""
    evaluation_dataset: str | None = None
    """For 'own': folder, file or Hub id. Unset: the training dataset."""
    evaluation_split: str = "test"
    """Split for 'own'."""
    overlap: Literal["exclude", "refuse", "allow"] = "exclude"
    """Handling of training rows whose image the evaluation scores: 'exclude' leaves them out, 'refuse' stops the run,
    'allow' trains on them and detects them only by name and file. They are counted in every case. docs/datasets.md
    defines what counts as the same image."""
    evaluation_items: PositiveInt = 400
    """Items per kind, for the sandbox."""
    blind_captions: str | None = None
    """Captions for the bigram model of the blind rules: a file, a folder, a Hub id, or coco. Unset: COCO captions if
    they are on this machine."""
    page: bool = True
    """Write report.html."""
    page_items: NonNegativeInt = DEFAULT_PAGE.items
    """Number of items to browse in report.html; 0 for none."""
    page_thumbnails: bool = DEFAULT_PAGE.thumbnails
    """Show thumbnails of these items."""
    forgetting_guard: bool = False
    """After training, score 11 points between the base and the method, and between the base and the control same-batch
    (WiSE-FT), on items that the report does not contain. The points that a rule chooses become models and lines of the
    report, see docs/forgetting.md."""
    guard_benchmarks: list[str] = []
    """Benchmarks that the points are chosen on, at least one of composition and one general. Unset: for the sandbox,
    scenes with another seed; otherwise half of the evaluation images, and the report covers the other half."""
    guard_data: list[str] = []
    """Data folders of guard_benchmarks as NAME=DIR; the other benchmarks are downloaded from the Hub."""
    guard_rule: Rule = "tolerance"
    """'tolerance': highest composition score among non-dominated points that keep the base's general score within
    guard_tolerance. 'mean': highest mean of both scores."""
    guard_tolerance: Fraction = TOLERANCE
    """Share of the general score that may be lost, 0 to 1."""
    primary: str | None = None
    """The number that the run's conclusions are about: 'benchmark: metric' (averaged over its subsets), 'benchmark:
    subset metric', or a name with *, for the mean of all lines that match. Unset, or if the command line changes only
    the evaluation: the first compositional benchmark, or the first one that has the metric `group` if any has it."""

    published_models: dict[str, str] | None = None
    """Names of models in a run, each with the published model that it reproduces, named as in docs/published.md. The
    report then shows the published sizes of its differences. Needs published_measure."""
    published_measure: str | None = None
    """Published number to compare with, in the form 'benchmark: metric'."""

    @model_validator(mode="before")
    @classmethod
    def _expand_paths(cls, values: dict[str, Any]) -> dict[str, Any]:
        paths = {name: values[name] for name in PATH_FIELDS if isinstance(values.get(name), str)}
        return values | {name: expand_variables(value, name) for name, value in paths.items()}

    @model_validator(mode="after")
    def _check(self) -> Self:
        # A field at its default is not a mistake, because a command line may change the field that it depends on.
        for holds, names, why in self._rules():
            for name in names if holds else ():
                if getattr(self, name) and getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} {why} leave {name} out.")
        if self.hard_images and not self.model and self.fresh_model not in SANDBOX_MODELS:
            raise ValueError(
                f"hard_images={self.hard_images} needs a trained base, because random weights find no meaningful "
                "neighbors. Pass --model, or set hard_images and num_neighbors to 0."
            )
        if self.forgetting_guard and len(self.seeds or ()) > 1:
            raise ValueError(
                f"forgetting_guard works only with one seed, found seeds={self.seeds}. Pass --seed {self.seeds[0]}."
            )
        if self.evaluation.endswith("benchmarks") and not self.evaluation_benchmarks:
            raise ValueError(
                f"evaluation: {self.evaluation} needs evaluation_benchmarks. Pass --evaluation_benchmarks NAME ..."
            )
        if self.ratings == HUMAN and not self.concreteness_ratings:
            raise ValueError(f"ratings: {HUMAN} needs the norms file. Pass --concreteness_ratings FILE. {HOW_TO_GET}")
        return self

    @property
    def rates_in_sandbox(self) -> bool:
        """Whether the negatives are the sandbox's own, which come with concreteness."""
        return self.dataset == SANDBOX and not self.keyword_negatives

    @property
    def joins_ratings(self) -> bool:
        """Whether the rows that the method trains on get their concreteness from the file."""
        return bool(self.concreteness_ratings) and (self.ratings == HUMAN or not self.rates_in_sandbox)

    def _rules(self) -> Iterator[tuple[bool, tuple[str, ...], str]]:
        """Yields conditions under which fields have no effect: whether it holds, the fields, and the reason."""
        yield (
            not self.captions_file,
            ("key_column", "captions_columns"),
            f"has no effect without captions_file, {NOT_SET}",
        )
        replay_fields = ("replay_config", "replay_split", "replay_column_names")
        yield not self.replay_dataset, replay_fields, f"has no effect without replay_dataset, {NOT_SET}"
        yield self.replay_dataset == SANDBOX, replay_fields, "has no effect with replay_dataset: sandbox;"
        keywords = bool(self.keyword_negatives)
        yield (
            not keywords,
            ("keyword_table", "keyword_captions_only"),
            f"has no effect without keyword_negatives, {NOT_SET}",
        )
        sandbox_fields = ("edit_noise", "edit_noise_step", "false_negatives", "negative_kinds", "ratings")
        yield keywords, sandbox_fields, "shapes the sandbox's own negatives, which keyword_negatives replaces;"
        yield not self.edit_noise, ("edit_noise_step",), f"has no effect without edit_noise, {NOT_SET}"
        yield not self.published_models, ("published_measure",), f"has no effect without published_models, {NOT_SET}"
        guard_fields = ("guard_benchmarks", "guard_rule", "guard_tolerance")
        yield not self.forgetting_guard, guard_fields, f"has no effect without forgetting_guard, {NOT_SET}"
        yield not self.guard_benchmarks, ("guard_data",), f"has no effect without guard_benchmarks, {NOT_SET}"
        whole = ("dataset_filter", "hard_images", "keyword_negatives", "keyword_captions_only")
        whole += ("concreteness_ratings", *(("captions",) if self.captions == "all" else ()))
        yield self.streaming, whole, "needs all rows before the first step, which streaming does not provide;"
        one_caption = ("captions_file", "keyword_negatives", "concreteness_ratings", "concept_parser")
        yield self.captions == "drawn", one_caption, "needs one caption per row, so captions: drawn does not work;"
        sandbox, why = self.dataset == SANDBOX, "does not work with the sandbox, whose rows"
        yield sandbox, ("concept_parser", "captions_file"), f"{why} already have concepts and captions;"
        yield sandbox, ("streaming", "captions"), f"{why} are generated with one caption per image;"
        yield not sandbox, (*sandbox_fields, "caption_noise"), f"shapes sandbox rows, not those of {self.dataset};"
