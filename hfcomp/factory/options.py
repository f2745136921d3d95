"""Options of `hfcomp build`: what to build and how."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from hfcomp.data.built_sets.files import ROWS_PER_SHARD
from hfcomp.data.publishing import without_local_paths
from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.factory.writer_options import LanguageModel, LanguageModelOptions, Temperature, WriterOptions, check_writer
from hfcomp.options import (
    THIS_MACHINE,
    AllowUrls,
    Amount,
    Count,
    Device,
    Needs,
    Options,
    Share,
    Spelling,
    UrlTimeout,
    declared_options,
)
from hfcomp.parsing import DEFAULT_PARSER
from hfcomp.parsing.tokens import CaptionChoice

RENAME = "--column_names {0}=<its name in your dataset>"
"""Advice to map a column on the command line."""


ExecutorName = Literal["local", "ray"]


@dataclass(frozen=True)
class Workers:
    """The workers that make the shards of a build. They do not affect the result.

    Attributes:
        executor: `local` for processes on this machine, or `ray` for actors of a Ray cluster.
        number: Number of processes or actors.
        gpus: GPUs per actor on Ray; defaults to one if the cluster has any.
    """

    executor: ExecutorName = "local"
    number: int = 1
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.executor not in get_args(ExecutorName):
            raise ValueError(f"--executor: found {self.executor!r}, expected {' or '.join(get_args(ExecutorName))}.")
        if self.number < 1:
            raise ValueError(f"--num_workers: found {self.number}, expected 1 or more.")
        if self.gpus is not None and self.executor != "ray":
            raise ValueError(
                "--gpus_per_worker has an effect only with --executor ray; local workers take this machine's GPUs in "
                "turn."
            )
        if self.gpus is not None and self.gpus < 0:
            raise ValueError(f"--gpus_per_worker: found {self.gpus:g}, expected 0 or more.")


Source = Annotated[
    str,
    THIS_MACHINE,
    "Hub id, folder (also of COCO, or of images with captions), or file: CSV, TSV, JSON lines, JSON, Parquet.",
]
ColumnNames = Annotated[
    str, Spelling("OURS=YOURS"), "Mapping from hfcomp's column names to yours, for example caption=text, or JSON."
]
Parser = Annotated[str, "Caption parser: spacy:NAME or rules."]
GrammarTolerance = Annotated[
    float | None,
    Needs("grammar_model", advice=", such as openai-community/gpt2"),
    "How much less likely than its caption a negative may be, in nats per token.",
]


@dataclass(kw_only=True)
class BuildOptions(Options):
    """Source and output."""

    what: ClassVar[str]
    steps: ClassVar[tuple[str, ...]] = ()
    source: Source
    output: Annotated[Path, THIS_MACHINE, "Folder for the built dataset."]
    split: Annotated[str, "Split of the source."] = "train"
    config: Annotated[str | None, "Configuration of the source."] = None
    column_names: ColumnNames = ""
    columns: Annotated[
        str | None,
        "Source columns to keep, comma-separated, besides license and those the build needs (default: all).",
    ] = None
    limit: Annotated[Count | None, "Read only the first N rows."] = None
    shard_size: Annotated[Count, "Rows of the source per file."] = ROWS_PER_SHARD
    executor: Annotated[
        ExecutorName,
        THIS_MACHINE,
        "local, or ray for a Ray cluster whose machines share the output folder and the source's files.",
    ] = "local"
    num_workers: Annotated[Count, THIS_MACHINE, "Number of processes, or of actors on Ray."] = 1
    gpus_per_worker: Annotated[
        Amount | None,
        THIS_MACHINE,
        Needs("executor", "ray", "; local workers take this machine's GPUs in turn"),
        "GPUs per actor on Ray. Defaults to one if the cluster has any.",
    ] = None
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT
    allow_outside_files: Annotated[bool, "Also copy image files from outside the source's folder."] = False
    only_adaptable: Annotated[
        bool,
        "Leave out rows whose license forbids adaptation or is unknown; without them, the dataset can be published.",
    ] = False

    @classmethod
    def runs(cls, step: str, until: str) -> bool:
        """Whether a build that ends with the step `until` runs a step."""
        return cls.steps.index(step) <= cls.steps.index(until)

    def words(self) -> list[str]:
        """The command that builds the dataset, without local paths and without options that do not affect its rows."""
        words = ["hfcomp", "build", self.what, "--source", without_local_paths(self.source)]
        for option in declared_options(type(self)).values():
            value = getattr(self, option.name)
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            if option.is_recorded and value != option.default:
                words += [f"--{option.name}"] if value is True else [f"--{option.name}", without_local_paths(text)]
        return words


def command_line(words: Sequence[str]) -> str:
    """A command in the form that cards show."""
    return f"{shlex.join(words)} --output DIR"


Preset = Literal["paper"] | None


def preset_help(values: Mapping[str, Any]) -> str:
    """The help of `--preset`, from the `paper` values of a class of options."""
    options = " and ".join(f"--{name} {value}" for name, value in values.items())
    return f"paper sets {options}: the papers' way, on which hfcomp's default improves. Options that are given win."


@dataclass(kw_only=True)
class PresetOptions(Options):
    """Preset.

    A preset gives options other defaults: the papers' values, wherever hfcomp's own default improves on the papers. A
    value that is given wins. A subclass lists its values in `paper` and declares `preset` with `preset_help(paper)`.
    Cards show the values instead of the preset, because a later version's preset may set more.
    """

    paper: ClassVar[Mapping[str, Any]] = {}
    preset: Preset = None

    def __new__(cls, **given: Any) -> PresetOptions:
        """Notes which options are given, because a given value may equal its default."""
        options = super().__new__(cls)
        options._given = frozenset(given)
        return options

    def __post_init__(self) -> None:
        for name, value in self.preset_values().items():
            setattr(self, name, value)
        super().__post_init__()

    def preset_values(self) -> dict[str, Any]:
        """The options that the preset sets."""
        return {name: value for name, value in self.paper.items() if self.preset and name not in self._given}


@dataclass(kw_only=True)
class CaptionOptions(BuildOptions):
    """Captions."""

    captions: Annotated[CaptionChoice, "Captions to use from a row with a list of captions."] = "longest"
    captions_file: Annotated[
        str | None, Spelling("FILE"), "File with captions to join by key: JSON, CSV or Parquet."
    ] = None
    key_column: Annotated[
        str | None, Needs("captions_file"), "Source column with the key, such as json.url (default: __key__)."
    ] = None
    captions_columns: Annotated[
        str | None, Needs("captions_file"), "Key and caption columns of captions_file (default: key,caption)."
    ] = None

    reads_english: ClassVar[bool] = True
    """Whether the captions must be English, because something that reads them knows no other language."""


@dataclass(kw_only=True)
class CopiedImageOptions(BuildOptions):
    """Damaged images."""

    skip_damaged: Annotated[
        bool, "Leave out and count rows with an image that cannot be decoded; otherwise the first one ends the build."
    ] = False


@dataclass(kw_only=True)
class NegativeOptions(PresetOptions, WriterOptions, CopiedImageOptions, CaptionOptions):
    """Hard negative captions from keywords, swaps, mask filling and language models."""

    what: ClassVar[str] = "negatives"
    paper: ClassVar[Mapping[str, Any]] = {"swap_rule": "plain"}
    preset: Annotated[Preset, THIS_MACHINE, preset_help(paper)] = None
    kinds: Annotated[
        tuple[str, ...],
        "Kinds to use in turn: keyword, swap, mask and llm, or a part of one, such as keyword:color, swap:nouns, "
        "mask:verb or llm:replace_obj.",
    ] = ("keyword",)
    num_negatives: Annotated[Count, "Negatives per caption."] = 1
    seed: Annotated[int, "Random seed."] = 0
    parser: Annotated[Parser, "Parser for swap and mask: spacy:NAME or rules."] = DEFAULT_PARSER
    fill_model: Annotated[str | None, "Masked language model for mask (default: FacebookAI/roberta-base)."] = None
    swap_rule: Annotated[
        Literal["guarded", "plain"],
        "guarded skips swaps that may leave the caption true or break its grammar; plain swaps any two parts that "
        "differ, as in the papers.",
    ] = "guarded"
    keyword_table: Annotated[
        str | None, Spelling("FILE"), "YAML file with your own concepts, which replace the paper's."
    ] = None
    keyword_matching: Annotated[
        Literal["paper", "extended"], "extended also matches plurals and any case, and corrects a/an."
    ] = "paper"
    drop_same_words: Annotated[bool, "Drop texts that only reorder the caption's words."] = False
    grammar_model: Annotated[str | None, "Drop texts that this causal language model finds ungrammatical."] = None
    grammar_tolerance: GrammarTolerance = None
    false_negative_model: Annotated[
        str | None, "Drop texts that this dual encoder scores above the caption for the caption's image."
    ] = None
    false_negative_margin: Annotated[
        float,
        Needs("false_negative_model", advice=", such as openai/clip-vit-base-patch32"),
        "Cosine margin by which such a text must at least exceed the caption.",
    ] = 0.0
    only_with_negative: Annotated[bool, "Leave out captions without a negative."] = False
    max_without_negative: Annotated[
        Share, "Largest allowed share of captions without a negative, 0 to 1; above it the build fails."
    ] = 0.5
    device: Device = None

    def __post_init__(self) -> None:
        """Raises ValueError for missing options, and for options without effect."""
        super().__post_init__()
        if self.has_kind("llm"):
            check_writer(self.writer, self.base_url, self.request_options)
            if self.writer == "substitute":
                raise ValueError(
                    "--writer substitute works only with keyword kinds, not with llm. Use --kinds keyword."
                )
        if self.swap_rule != "guarded" and not self.has_kind("swap"):
            given = "--preset paper" if "swap_rule" in self.preset_values() else "--swap_rule"
            raise ValueError(f"{given} needs --kinds to include swap. Remove it, or add swap to --kinds.")
        needed = (("fill_model", "mask"), ("keyword_table", "keyword"), ("base_url", "llm"), ("answer_cache", "llm"))
        for name, generator in needed:
            if getattr(self, name) and not self.has_kind(generator):
                raise ValueError(f"--{name} needs --kinds to include {generator}.")

    @property
    def reads_english(self) -> bool:
        """False if only a language model writes negatives."""
        return any(kind.partition(":")[0] != "llm" for kind in self.kinds)

    def has_kind(self, generator: str) -> bool:
        """Whether the kinds include a generator or a part of it."""
        return any(kind.partition(":")[0] == generator for kind in self.kinds)


@dataclass(kw_only=True)
class ConceptOptions(LanguageModelOptions, CopiedImageOptions, CaptionOptions):
    """Noun phrases of captions (C2LIP)."""

    what: ClassVar[str] = "concepts"
    writer: Annotated[
        Literal["parser", "endpoint", "transformers"],
        "parser reads the phrases from the parser's trees, as in the paper, and needs no language model; endpoint "
        "queries the server at base_url, transformers runs a model in this process, as in the released code.",
    ] = "parser"
    parser: Annotated[Parser, Needs("writer", "parser")] = DEFAULT_PARSER
    llm: LanguageModel = "microsoft/Phi-3.5-mini-instruct"
    temperature: Temperature = 0.0
    max_concepts: Annotated[
        Count | None, "Keep the first N phrases of a caption and count the others (default: all)."
    ] = None
    seed: Annotated[int, "Random seed of a language model's answers."] = 0
    device: Annotated[Device, Needs("writer", "transformers")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.writer == "parser":
            self.reject_model_options("seed")
        else:
            instead = "--writer parser, which needs no language model"
            check_writer(self.writer, self.base_url, self.request_options, instead)

    @property
    def reads_english(self) -> bool:
        """False if a language model reads the captions."""
        return self.writer == "parser"


@dataclass(kw_only=True)
class NeighborOptions(CopiedImageOptions):
    """Nearest images of each image (NegCLIP)."""

    what: ClassVar[str] = "neighbors"
    model: Annotated[str, "Hub id or folder of the embedding model."]
    number: Annotated[Count, "Neighbors per image."] = 3
    by: Annotated[Literal["image", "caption"], "Embeddings to compare."] = "image"
    device: Device = None
