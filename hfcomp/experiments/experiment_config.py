"""What an experiment is made of: the fields of a recipe beside those of its trainer's config."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from hfcomp.data.columns import nearest
from hfcomp.negatives.keywords import MATCHINGS

SANDBOX = "sandbox"
SANDBOX_MODELS = {SANDBOX: "clip", "sandbox-siglip": "siglip"}  # the architectures of its bases
FRESH_MODELS = (*SANDBOX_MODELS, "vit_b32")
EVALUATIONS = (SANDBOX, f"{SANDBOX}+benchmarks", "benchmarks", "own")
CAPTIONS = ("longest", "all")
EXCLUDE, REFUSE, ALLOW = OVERLAPS = ("exclude", "refuse", "allow")
CONTROLS = ("plain", "same-batch", "shuffled", "random-spans", "equal-images")
NOISE_FIELDS = ("edit_noise", "caption_noise", "false_negatives")
SANDBOX_FIELDS = (*NOISE_FIELDS, "negative_kinds")
# Those of them that shape negatives, which keyword negatives take the place of.
SANDBOX_NEGATIVE_FIELDS = ("edit_noise", "false_negatives", "negative_kinds")
KEYWORD_FIELDS = ("keyword_table", "keyword_captions_only")
CAPTIONS_FILE_FIELDS = ("key_column", "captions_columns")
# Fields that need all rows before the first step.
WHOLE_SET_FIELDS = (
    "dataset_filter",
    "keyword_negatives",
    "keyword_captions_only",
    "concreteness_ratings",
    "hard_images",
)
# Fields in which $NAME stands for an environment variable, and evaluation_data; in no other does it.
PATH_FIELDS = (
    "dataset",
    "evaluation_dataset",
    "clip_vocabulary",
    "concreteness_ratings",
    "keyword_table",
    "captions_file",
)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
# TOKEN and KEY as whole words (CLIP_TOKENIZER and KEYWORDS hold no secret), in a name with "_" before capitals.
_SECRET = re.compile(
    "SECRET|PASSWORD|PASSWD|CREDENTIAL|(?<![A-Z])(API|ACCESS|AUTH|PRIVATE)?(TOKEN|KEY)S?(?![A-Z])", re.IGNORECASE
)


@dataclass
class ExperimentConfig:
    """What an experiment is made of; the rest of a recipe are fields of its trainer's config.

    A recipe is one flat YAML mapping over both. `batch_size` is the contrastive batch over all processes: the same
    recipe gives the same batches on one process and on several.
    """

    objective: str = field(metadata={"help": "The trainer, as module:class (a user's own works too)."})
    method: str = field(metadata={"help": "Name of the method in tables and folders."})
    dataset: str = field(metadata={"help": "'sandbox', a folder or file, or a Hub id with the column contract."})
    batch_size: int = field(metadata={"help": "Rows of the contrastive batch, over all processes."})
    model: str | None = field(
        default=None, metadata={"help": "Hub id or folder. Unset: a model without a download, as `fresh_model` says."}
    )
    fresh_model: str = field(
        default=SANDBOX,
        metadata={
            "help": "Without --model: 'sandbox' and 'sandbox-siglip' are the tiny models that hfcomp brings along, "
            "'vit_b32' is a CLIP of that size with random weights."
        },
    )
    clip_vocabulary: str | None = field(
        default=None, metadata={"help": "Folder with CLIP's vocab.json and merges.txt, for fresh_model vit_b32."}
    )
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of a Hub data set."})
    dataset_split: str = field(default="train", metadata={"help": "Split to train on."})
    dataset_filter: str | None = field(
        default=None, metadata={"help": "column=value; only such rows are used, the others are counted."}
    )
    captions: str = field(
        default="longest",
        metadata={
            "help": "Of a row with a list of captions: the 'longest', or 'all', each a row of its own with the image."
        },
    )
    captions_file: str | None = field(
        default=None,
        metadata={
            "help": "JSON, JSON-lines, CSV or Parquet file of captions, joined by key; rows without one are counted "
            "and left out."
        },
    )
    key_column: str | None = field(
        default=None,
        metadata={"help": "Of the data set, as json.url; by default __key__, which WebDataset shards have."},
    )
    captions_columns: str | None = field(
        default=None, metadata={"help": "Key and caption in captions_file, by default key,caption."}
    )
    dataset_rows: int = field(default=8000, metadata={"help": "Rows made, for the sandbox."})
    negative_kinds: list[str] | None = field(
        default=None, metadata={"help": "Kinds of the sandbox's negatives (swap_att, ...); unset: its own mixture."}
    )
    edit_noise: float = field(
        default=0.0, metadata={"help": "Share of the sandbox's negative images whose edit went wrong, 0 to 1."}
    )
    caption_noise: float = field(
        default=0.0, metadata={"help": "Share of the sandbox's captions that are wrong, 0 to 1."}
    )
    false_negatives: float = field(
        default=0.0, metadata={"help": "Share of the sandbox's negative captions that are true after all, 0 to 1."}
    )
    keyword_negatives: list[str] | None = field(
        default=None,
        metadata={
            "help": "Concepts (object, color, location, size, or those of keyword_table) of negatives made for each "
            "caption; the data set's own negatives are dropped."
        },
    )
    keyword_table: str | None = field(
        default=None,
        metadata={
            "help": "YAML file of your own concepts and keywords, by its path or its name beside the recipe. Unset: "
            "the paper's Table 6."
        },
    )
    keyword_matching: str = field(
        default="paper",
        metadata={"help": "How keywords are found: 'paper', or 'extended' by capitals, plurals and articles."},
    )
    keyword_captions_only: bool = field(
        default=False,
        metadata={"help": "Train on captions that hold a keyword of keyword_negatives alone; others are counted."},
    )
    hard_images: int = field(
        default=0,
        metadata={
            "help": "Nearest images of each image, by the base's embeddings, that num_neighbours draws from. 0: the "
            "data set's own column neighbour_ids."
        },
    )
    concreteness_ratings: str | None = field(
        default=None, metadata={"help": "File of Brysbaert et al. 2014, joined to the negatives' keywords."}
    )
    concept_parser: str | None = field(
        default=None,
        metadata={
            "help": "Parser ('rules' or spacy:NAME) that makes the concepts of captions, for C2LIP. A data set with a "
            "column concepts keeps its own. `hfcomp build concepts` makes them once, on several processes."
        },
    )
    streaming: bool = field(
        default=False,
        metadata={
            "help": "Read the training set while training goes on, without a copy on disk: a Hub id, or a folder of "
            "WebDataset shards or Parquet files. Needs max_steps."
        },
    )
    controls: list[str] = field(
        default_factory=lambda: list(CONTROLS),
        metadata={
            "help": "Runs beside the method from the same base, with the same positives and steps: plain (InfoNCE on "
            "the positives), same-batch (InfoNCE on the negatives too), shuffled (the method, each negative beside "
            "another row), random-spans (the method, runs of a caption's words in place of its phrases), equal-images "
            "(plain, with as many images as the method); or none."
        },
    )
    evaluation: str = field(
        default=SANDBOX,
        metadata={
            "help": "'sandbox', 'benchmarks', both: 'sandbox+benchmarks', or 'own': retrieval and "
            "caption choice on a set of yours."
        },
    )
    evaluation_benchmarks: list[str] = field(
        default_factory=list,
        metadata={"help": "For 'benchmarks': their names, as `hfcomp evaluate --list` has them."},
    )
    evaluation_data: list[str] = field(
        default_factory=list,
        metadata={"help": "For 'benchmarks': NAME=DIR, folders with their data; the others come from the Hub."},
    )
    evaluation_dataset: str | None = field(
        default=None, metadata={"help": "For 'own': folder, file or Hub id. Unset: the training set's."}
    )
    evaluation_split: str = field(default="test", metadata={"help": "Split for 'own'."})
    overlap: str = field(
        default=EXCLUDE,
        metadata={
            "help": "Training rows whose image the evaluation scores: 'exclude' leaves them out, 'refuse' ends the "
            "run, 'allow' trains on them, and knows them by name and file alone; counted in any case. "
            "docs/datasets.md says what counts as the same image."
        },
    )
    evaluation_items: int = field(default=400, metadata={"help": "Items of each kind, for the sandbox."})
    primary: str | None = field(
        default=None,
        metadata={
            "help": "The one number that the verdict is about: 'benchmark: metric' (over its subsets), 'benchmark: "
            "subset metric', or with * the mean of all that fit. Unset, or where the command line changes the "
            "evaluation alone: the first benchmark of composition, by its metric `group` where it has one."
        },
    )

    def __post_init__(self) -> None:
        choices = {"fresh_model": FRESH_MODELS, "evaluation": EVALUATIONS}
        choices |= {"keyword_matching": tuple(MATCHINGS), "captions": CAPTIONS, "overlap": OVERLAPS}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(known)}.")
        self.controls = [self.controls] if isinstance(self.controls, str) else list(self.controls or [])
        if self.controls == ["none"]:
            self.controls = []
        unknown = [name for name in self.controls if name not in CONTROLS]
        if unknown:
            raise ValueError(f"controls names {unknown}; known: {', '.join(CONTROLS)}, or none alone for no control.")
        for name in NOISE_FIELDS:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected a share, 0 to 1.")
        for name in SANDBOX_FIELDS:
            if getattr(self, name) and self.dataset != SANDBOX:
                raise ValueError(f"{name} shapes the sandbox's rows, not those of {self.dataset}. Leave it out.")
        _check_kinds(self.negative_kinds or [])
        self._check_keywords()
        if self.concept_parser and self.dataset == SANDBOX:
            raise ValueError("concept_parser: the sandbox's rows have concepts of their own. Leave it out.")
        self._check_captions_file()
        self._check_streaming()
        if self.hard_images < 0 or (self.hard_images and not self.model and self.fresh_model not in SANDBOX_MODELS):
            raise ValueError(
                f"hard_images={self.hard_images}: expected 0 or more, and a trained base, as random weights find no "
                "neighbours. Pass --model, or leave hard_images out."
            )
        for name in PATH_FIELDS:
            if getattr(self, name):
                setattr(self, name, expanded(getattr(self, name), name))
        if self.evaluation.endswith("benchmarks") and not self.evaluation_benchmarks:
            raise ValueError(
                f"evaluation: {self.evaluation} needs evaluation_benchmarks. Pass --evaluation_benchmarks NAME ..."
            )

    def _check_streaming(self) -> None:
        if not self.streaming:
            return
        if self.dataset == SANDBOX:
            raise ValueError("streaming: the sandbox's rows are drawn here. Leave it out.")
        whole = [name for name in WHOLE_SET_FIELDS if getattr(self, name)]
        whole += ["captions=all"] if self.captions == "all" else []
        if whole:
            raise ValueError(
                f"streaming: {', '.join(whole)} need all rows before the first step. Leave streaming out."
            )

    def _check_captions_file(self) -> None:
        if self.captions_file and self.dataset == SANDBOX:
            raise ValueError("captions_file: the sandbox's rows have captions of their own. Leave it out.")
        for name in CAPTIONS_FILE_FIELDS:
            if getattr(self, name) and not self.captions_file:
                raise ValueError(f"{name} is of captions_file, which is not set. Set it, or leave {name} out.")

    def _check_keywords(self) -> None:
        for name in KEYWORD_FIELDS:
            if getattr(self, name) and not self.keyword_negatives:
                raise ValueError(
                    f"{name} is of keyword_negatives, which is not set. Set it to concepts, or leave it out."
                )
        for name in SANDBOX_NEGATIVE_FIELDS:
            if getattr(self, name) and self.keyword_negatives:
                raise ValueError(
                    f"{name} shapes the sandbox's own negatives, which keyword_negatives takes the place of. Leave "
                    "one of the two out."
                )
        if self.captions == "all" and self.dataset == SANDBOX:
            raise ValueError("captions=all: the sandbox has one caption per image. Leave it out.")


def _check_kinds(names: list[str]) -> None:
    if not names:
        return
    from hfcomp.sandbox import KINDS

    for name in names:
        if name not in KINDS:
            raise ValueError(
                f"negative_kinds: the sandbox has no {name!r}.{nearest(name, KINDS)} Known: {', '.join(KINDS)}."
            )


def expanded(value: str, name: str) -> str:
    """A value of a field of paths, with environment variables in the place of `$NAME` and `${NAME}`.

    Paths are printed, and written into reports and cards. So a variable that by its name holds a secret is refused: a
    recipe of somebody else could ask for it.

    Args:
        value: of the field.
        name: of the field.

    Raises:
        ValueError: for a variable that is not set, or whose name holds SECRET, PASSWORD, PASSWD or
            CREDENTIAL, or the word TOKEN or KEY.
    """

    def of(found: re.Match[str]) -> str:
        variable = found[1] or found[2]
        if _SECRET.search(re.sub("(?<=[a-z])(?=[A-Z])", "_", variable)):
            raise ValueError(
                f"{name}={value!r}: the environment variable {variable} may hold a secret by its name, and paths are "
                f"written into reports. Rename it, or pass --{name.lstrip('-')} with the path itself."
            )
        if variable not in os.environ:
            raise ValueError(
                f"{name}={value!r} names an environment variable that is not set. Set it, or pass "
                f"--{name.lstrip('-')}."
            )
        return os.environ[variable]

    return _VARIABLE.sub(of, value)
