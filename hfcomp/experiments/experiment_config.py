"""What an experiment is made of: the fields of a recipe beside those of its trainer's config."""

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
SANDBOX_MODELS = {SANDBOX: "clip", "sandbox-siglip": "siglip"}  # the architectures of its bases
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
# Fields in which $NAME stands for an environment variable. evaluation_data is the only other one.
PATH_FIELDS = (
    *("dataset", "replay_dataset", "evaluation_dataset", "clip_vocabulary"),
    *("concreteness_ratings", "keyword_table", "captions_file", "blind_captions"),
)


def _listed(controls: Any) -> Any:
    # People write `controls:` without a value, `none` or a single name for a list.
    found = [controls] if isinstance(controls, str) else controls
    return [] if found in (None, ["none"]) else found


def _check_kinds(names: list[str]) -> list[str]:
    from hfcomp.sandbox import KINDS

    for name in names:
        if name not in KINDS:
            raise ValueError(f"the sandbox has no {name!r}.{nearest(name, KINDS)} Known: {', '.join(KINDS)}.")
    return names


def distinct(values: list[Any]) -> list[Any]:
    """Raises for a value that is listed twice."""
    # Compared by type too: Python's 1 equals True, and both are choices of a search.
    kinds = [(type(value), value) for value in values]
    for number, kind in enumerate(kinds):
        if kind in kinds[:number]:
            raise ValueError(f"{kind[1]!r} is listed twice. Remove one.")
    return values


def _enough_seeds(seeds: list[int]) -> list[int]:
    # One seed has intervals over images. The spread of two is too uncertain for an interval over seeds.
    if 1 < len(seeds) < FEWEST_SEEDS:
        raise ValueError(
            f"found two, {seeds[0]} and {seeds[1]}: too few for an interval over seeds. Remove one, or add a third."
        )
    return seeds


Fraction = Annotated[float, Field(ge=0, le=1)]
Seeds = Annotated[list[NonNegativeInt], Field(min_length=1), AfterValidator(distinct), AfterValidator(_enough_seeds)]


class ExperimentConfig(Strict):
    """What an experiment is made of; the rest of a recipe are fields of its trainer's config.

    A recipe is one flat YAML mapping over both. `batch_size` is the contrastive batch over all processes: the same
    recipe gives the same batches on one process and on several.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    objective: str
    """The trainer, as module:class (a user's own works too)."""
    method: Annotated[str, plain_name("base", "evaluation", *CONTROLS)]
    """Name of the method in tables and folders."""
    dataset: str
    """'sandbox', a folder or file, or a Hub id with the column contract."""
    batch_size: PositiveInt
    """Rows of the contrastive batch, over all processes."""
    max_batch_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """Largest fraction of the training images that one batch may show, neighbors included: the recipe's batch_size is
    lowered to it. A batch_size on the command line is kept."""
    model: str | None = None
    """Hub id or folder. Unset: a model without a download, as `fresh_model` says."""
    fresh_model: Literal[*SANDBOX_MODELS, *RANDOM_MODELS] = SANDBOX
    """Without --model: 'sandbox' and 'sandbox-siglip' are the tiny models that hfcomp brings along, 'vit_b32' and
    'vit_tiny' are CLIPs with random weights."""
    clip_vocabulary: str | None = None
    """Folder with CLIP's vocab.json and merges.txt, for CLIPs with random weights."""
    dataset_config: str | None = None
    """Configuration of a Hub dataset."""
    dataset_split: str = "train"
    """Split to train on."""
    dataset_filter: str | None = None
    """column=value; only such rows are used, the others are counted."""
    captions: Literal["longest", "first", "all", "drawn"] = "longest"
    """Which caption of a row with a list: the 'longest', the 'first', 'all', each a row of its own with the image, or
    one 'drawn' in each epoch."""
    captions_file: str | None = None
    """JSON, JSON-lines, CSV or Parquet file of captions, joined by key; rows without one are counted and left out."""
    key_column: str | None = None
    """Of the dataset, as json.url; by default __key__, which WebDataset shards have."""
    captions_columns: str | None = None
    """Key and caption in captions_file, by default key,caption."""
    dataset_rows: PositiveInt = 8000
    """Rows made, for the sandbox."""
    negative_kinds: Annotated[list[str], AfterValidator(_check_kinds)] | None = None
    """Kinds of the sandbox's negatives (swap_att, ...); unset: its own mixture."""
    edit_noise: Fraction = 0.0
    """Fraction of the sandbox's negative images whose edit went wrong, 0 to 1."""
    edit_noise_step: bool = False
    """Apply edit_noise to sizes, numbers, relations and 'plain' alone, with its whole probability: with edit_noise 1,
    edits of abstract words never show."""
    caption_noise: Fraction = 0.0
    """Fraction of the sandbox's captions that are wrong, 0 to 1."""
    false_negatives: Fraction = 0.0
    """Fraction of the sandbox's negative captions that are true after all, 0 to 1."""
    ratings: Literal["bands", HUMAN, "synthetic"] = "bands"
    """Concreteness of the sandbox's keywords: 'bands' (our bands, in the order of human norms), 'human' (those of
    concreteness_ratings) or 'synthetic' (made up)."""
    keyword_negatives: list[str] | None = None
    """Concepts (object, color, location, size, or those of keyword_table) of negatives made for each caption; the data
    set's own negatives are dropped."""
    keyword_table: str | None = None
    """YAML file of your own concepts and keywords, by its path or its name beside the recipe. Unset: the paper's Table
    6."""
    keyword_matching: Literal["paper", "extended"] = "paper"
    """How keywords are found: 'paper', or 'extended' by capitals, plurals and articles."""
    keyword_captions_only: bool = False
    """Train on captions that hold a keyword of keyword_negatives alone; others are counted."""
    hard_images: NonNegativeInt = 0
    """Nearest images of each image, by the base's embeddings, that num_neighbors draws from. 0: the dataset's own
    column neighbor_ids."""
    concreteness_ratings: str | None = None
    """File of Brysbaert et al. 2014, joined to the negatives' keywords. With the sandbox's own negatives it adds the
    method with human ratings as a run of its own, and with ratings: human it is the method's."""
    concept_parser: str | None = None
    """Parser ('rules' or spacy:NAME) that makes the concepts of captions, for C2LIP. A dataset with a column concepts
    keeps its own. `hfcomp build concepts` makes them once, on several processes."""
    streaming: bool = False
    """Read the training set while training goes on, without a copy on disk: a Hub id, or a folder of WebDataset shards
    or Parquet files. Needs max_steps."""
    replay_dataset: str | None = None
    """General set whose rows join every batch of all models, as many as replay_fraction says: 'sandbox' for general
    scenes, a folder or file, or a Hub id, with the columns image and caption."""
    replay_config: str | None = None
    """Configuration of replay_dataset on the Hub."""
    replay_split: str = "train"
    """Split of replay_dataset, or a slice such as train[:100000]."""
    replay_column_names: dict[str, str] | None = None
    """Own names of the columns of replay_dataset, as image=jpg,caption=txt (hfcomp's name first)."""
    controls: Annotated[list[Literal[CONTROLS]], BeforeValidator(_listed)] = list(CONTROLS)
    """Runs beside the method from the same base, with the same positives and steps: plain (InfoNCE on the positives),
    same-batch (InfoNCE on the negatives too), static-margin (the method, the same margin for every pair), shuffled
    (the method, each negative beside another row), random-spans (the method, runs of a caption's words in place of its
    phrases), equal-images (plain, with as many images as the method); or none."""
    seeds: Seeds | None = None
    """Seeds that the method and the controls are trained with, one or at least three, as 42 43 44; the report has
    means over them, with intervals for other images and other seeds. Unset: the one of `seed`."""
    arms_at_once: PositiveInt = 1
    """Models that train at the same time, each in a process with its share of the threads; on a CPU, in a run of one
    process. Faster if one thread is nearly as fast as all, as with the sandbox's tiny models."""
    evaluation: Literal[SANDBOX, "sandbox+benchmarks", "benchmarks", "own"] = SANDBOX
    """'sandbox', 'benchmarks', both: 'sandbox+benchmarks', or 'own': retrieval and caption choice on a set of
    yours."""
    evaluation_benchmarks: list[str] = []
    """For 'benchmarks': their names, as `hfcomp evaluate --list` has them."""
    evaluation_data: list[str] = []
    """For 'benchmarks': NAME=DIR, folders with their data; the others come from the Hub."""
    evaluation_dataset: str | None = None
    """For 'own': folder, file or Hub id. Unset: the training set's."""
    evaluation_split: str = "test"
    """Split for 'own'."""
    overlap: Literal["exclude", "refuse", "allow"] = "exclude"
    """Training rows whose image the evaluation scores: 'exclude' leaves them out, 'refuse' ends the run, 'allow'
    trains on them, and knows them by name and file alone; counted in any case. docs/datasets.md says what counts as
    the same image."""
    evaluation_items: PositiveInt = 400
    """Items of each kind, for the sandbox."""
    blind_captions: str | None = None
    """What the bigram model among the blind rules is counted on: a file, a folder, a Hub id, or coco. Unset: COCO's
    captions where they are on this machine."""
    page: bool = True
    """Write report.html."""
    page_items: NonNegativeInt = DEFAULT_PAGE.items
    """Items to look at in report.html; 0 for none."""
    page_thumbnails: bool = DEFAULT_PAGE.thumbnails
    """With small pictures of these items."""
    forgetting_guard: bool = False
    """After training, score 11 points between the base and the method, and the control same-batch (WiSE-FT), on items
    that the report does not have; the points that a rule chooses become models and lines of the report.
    docs/forgetting.md says how."""
    guard_benchmarks: list[str] = []
    """Those that choose the points, of composition and general, at least one each. Unset: scenes of another seed for
    the sandbox, else half of the images of the evaluation, and the report is of the other half."""
    guard_data: list[str] = []
    """NAME=DIR, folders with their data; the others come from the Hub."""
    guard_rule: Rule = "tolerance"
    """'tolerance': the highest composition of points that are not dominated and keep the base's general score but for
    guard_tolerance; 'mean': the highest mean of both scores."""
    guard_tolerance: Fraction = TOLERANCE
    """Of the general score that may be lost, 0 to 1."""
    primary: str | None = None
    """The one number that the verdict is about: 'benchmark: metric' (over its subsets), 'benchmark: subset metric', or
    with * the mean of all that fit. Unset, or where the command line changes the evaluation alone: the first benchmark
    of composition, by its metric `group` where it has one."""

    published_models: dict[str, str] | None = None
    """Names of models of a run, each with the published model that it repeats, as docs/published.md has them: the
    report shows the published sizes of its differences. Needs published_measure."""
    published_measure: str | None = None
    """Published number that is compared, as 'benchmark: metric'."""

    @model_validator(mode="before")
    @classmethod
    def _expand_paths(cls, values: dict[str, Any]) -> dict[str, Any]:
        paths = {name: values[name] for name in PATH_FIELDS if isinstance(values.get(name), str)}
        return values | {name: expand_variables(value, name) for name, value in paths.items()}

    @model_validator(mode="after")
    def _check(self) -> Self:
        # A field at its default is not a mistake: a command line may change the field that it depends on.
        for holds, names, why in self._rules():
            for name in names if holds else ():
                if getattr(self, name) and getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} {why} leave {name} out.")
        if self.hard_images and not self.model and self.fresh_model not in SANDBOX_MODELS:
            raise ValueError(
                f"hard_images={self.hard_images} needs a trained base: random weights find no neighbors. Pass "
                "--model, or set hard_images and num_neighbors to 0."
            )
        if self.forgetting_guard and len(self.seeds or ()) > 1:
            raise ValueError(
                f"forgetting_guard is for a run with one seed, and found seeds={self.seeds}. Pass --seed "
                f"{self.seeds[0]}."
            )
        if self.evaluation.endswith("benchmarks") and not self.evaluation_benchmarks:
            raise ValueError(
                f"evaluation: {self.evaluation} needs evaluation_benchmarks. Pass --evaluation_benchmarks NAME ..."
            )
        if self.ratings == HUMAN and not self.concreteness_ratings:
            raise ValueError(
                f"ratings: {HUMAN} needs the file of the norms. Pass --concreteness_ratings FILE. {HOW_TO_GET}"
            )
        return self

    @property
    def rates_in_sandbox(self) -> bool:
        """Whether the negatives are the sandbox's own, which come with concreteness."""
        return self.dataset == SANDBOX and not self.keyword_negatives

    @property
    def joins_ratings(self) -> bool:
        """Whether the rows that the method trains on have the concreteness of the file."""
        return bool(self.concreteness_ratings) and (self.ratings == HUMAN or not self.rates_in_sandbox)

    def _rules(self) -> Iterator[tuple[bool, tuple[str, ...], str]]:
        """Fields that mean nothing beside the others: whether it is so, which, and why."""
        yield not self.captions_file, ("key_column", "captions_columns"), f"is of captions_file, {NOT_SET}"
        of_replay = ("replay_config", "replay_split", "replay_column_names")
        yield not self.replay_dataset, of_replay, f"is of replay_dataset, {NOT_SET}"
        yield self.replay_dataset == SANDBOX, of_replay, "is not for scenes of the sandbox that are replayed;"
        keywords = bool(self.keyword_negatives)
        yield not keywords, ("keyword_table", "keyword_captions_only"), f"is of keyword_negatives, {NOT_SET}"
        of_negatives = ("edit_noise", "edit_noise_step", "false_negatives", "negative_kinds", "ratings")
        yield keywords, of_negatives, "shapes the sandbox's own negatives, which keyword_negatives replaces;"
        yield not self.edit_noise, ("edit_noise_step",), f"is of edit_noise, {NOT_SET}"
        yield not self.published_models, ("published_measure",), f"is of published_models, {NOT_SET}"
        of_guard = ("guard_benchmarks", "guard_rule", "guard_tolerance")
        yield not self.forgetting_guard, of_guard, f"is of forgetting_guard, {NOT_SET}"
        yield not self.guard_benchmarks, ("guard_data",), f"is of guard_benchmarks, {NOT_SET}"
        whole = ("dataset_filter", "hard_images", "keyword_negatives", "keyword_captions_only")
        whole += ("concreteness_ratings", *(("captions",) if self.captions == "all" else ()))
        yield self.streaming, whole, "needs all rows before the first step, not with streaming;"
        of_one = ("captions_file", "keyword_negatives", "concreteness_ratings", "concept_parser")
        yield self.captions == "drawn", of_one, "is for one caption of each row, not with captions: drawn;"
        sandbox, has = self.dataset == SANDBOX, "is not for the sandbox, whose"
        yield sandbox, ("concept_parser", "captions_file"), f"{has} rows have concepts and captions of their own;"
        yield sandbox, ("streaming", "captions"), f"{has} rows are drawn here with one caption for each image;"
        yield not sandbox, (*of_negatives, "caption_noise"), f"shapes the sandbox's rows, not those of {self.dataset};"
