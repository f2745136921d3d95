"""What is built, and how; the fields are the options of `hfcomp build`, their descriptions its help."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Literal

from hfcomp.data.publishing import without_local_paths
from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.generation.runner import ROWS_PER_SHARD
from hfcomp.parsing import DEFAULT_PARSER

# Fields that say where and how a set is built, and not what is in it.
OF_THIS_MACHINE = ("source", "output", "num_workers", "device", "url_timeout")
ComparedBy = Literal["image", "caption"]
NUMBERS = ("limit", "shard_size", "num_workers", "num_negatives", "max_concepts", "number")
"""Fields that are 1 or more."""


@dataclass(kw_only=True)
class BuildOptions:
    """Source and output.

    Attributes:
        source: Hub id, folder (of COCO or of images with captions too), or JSON-lines file.
        output: folder of the built set.
        split: of the source.
        config: the source's configuration.
        column_names: hfcomp's name=the source's name, as caption=text; or JSON.
        columns: of the source, to keep besides those needed, comma-separated; by default all.
        limit: read the first N rows only.
        shard_size: rows of the source per file.
        num_workers: processes.
        allow_urls: fetch images that the data names by URL; only for data you trust.
        url_timeout: seconds for one image.
        allow_outside_files: also copy image files from outside the source's folder.
        only_adaptable: leave out rows whose licence allows no adaptation or is unknown; needed to publish the set.
    """

    what: ClassVar[str]
    source: str
    output: Path
    split: str = "train"
    config: str | None = None
    column_names: str = ""
    columns: str | None = None
    limit: int | None = None
    shard_size: int = ROWS_PER_SHARD
    num_workers: int = 1
    allow_urls: bool = False
    url_timeout: float = DEFAULT_TIMEOUT
    allow_outside_files: bool = False
    only_adaptable: bool = False

    def __post_init__(self) -> None:
        for name in NUMBERS:
            number = getattr(self, name, None)
            if number is not None and number < 1:
                raise ValueError(f"{name}: found {number}, expected 1 or more.")

    def command(self) -> str:
        """The command that builds the set, without places on this machine and what changes nothing in the set."""
        words = ["hfcomp", "build", self.what, "--source", without_local_paths(self.source)]
        for field in fields(self):
            value = getattr(self, field.name)
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            if field.name in OF_THIS_MACHINE or value == field.default:
                continue
            words += [f"--{field.name}"] if value is True else [f"--{field.name}", without_local_paths(text)]
        return f"{shlex.join(words)} --output DIR"


@dataclass(kw_only=True)
class CaptionOptions(BuildOptions):
    """Captions.

    Attributes:
        captions: where a row has a list of captions.
        captions_file: captions to join by key: JSON, CSV or Parquet.
        key_column: of the source, such as json.url; by default __key__.
        captions_columns: of captions_file; by default key,caption.
    """

    captions: Literal["longest", "all"] = "longest"
    captions_file: str | None = None
    key_column: str | None = None
    captions_columns: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.captions_file and (self.key_column or self.captions_columns):
            raise ValueError("--key_column and --captions_columns need --captions_file.")


@dataclass(kw_only=True)
class NegativeOptions(CaptionOptions):
    """Hard negative captions: keywords, swaps and mask filling.

    Attributes:
        kinds: in turn, of keyword, swap and mask, or a part of one as keyword:color, swap:nouns, mask:verb.
        num_negatives: for each caption.
        seed: of all draws.
        parser: of swap and mask, spacy:NAME or rules.
        fill_model: masked language model of mask; by default FacebookAI/roberta-base.
        keyword_table: YAML file of your own concepts instead of the paper's.
        keyword_matching: extended matches plurals too and fixes a/an.
        drop_same_words: drop texts that reorder the caption's words.
        grammar_model: drop texts that this causal language model finds ungrammatical.
        grammar_tolerance: nats per token that a negative may lose.
        false_negative_model: drop texts that this dual encoder finds true of the image.
        false_negative_margin: cosine by which such a text leads the caption.
        only_with_negative: leave out captions without a negative.
        device: such as cpu or cuda:1; by default a GPU where there is one.
    """

    what: ClassVar[str] = "negatives"
    kinds: tuple[str, ...] = ("keyword",)
    num_negatives: int = 1
    seed: int = 0
    parser: str = DEFAULT_PARSER
    fill_model: str | None = None
    keyword_table: str | None = None
    keyword_matching: Literal["paper", "extended"] = "paper"
    drop_same_words: bool = False
    grammar_model: str | None = None
    grammar_tolerance: float | None = None
    false_negative_model: str | None = None
    false_negative_margin: float = 0.0
    only_with_negative: bool = False
    device: str | None = None

    def __post_init__(self) -> None:
        """An option that changes nothing is a mistake."""
        super().__post_init__()
        if self.grammar_tolerance is not None and not self.grammar_model:
            raise ValueError("--grammar_tolerance needs --grammar_model, such as openai-community/gpt2.")
        if self.false_negative_margin and not self.false_negative_model:
            raise ValueError(
                "--false_negative_margin needs --false_negative_model, such as openai/clip-vit-base-patch32."
            )
        for name, generator in (("fill_model", "mask"), ("keyword_table", "keyword")):
            if getattr(self, name) and not self.has_kind(generator):
                raise ValueError(f"--{name} needs the kind {generator}.")

    def has_kind(self, generator: str) -> bool:
        """Whether a generator, or a part of it, is among the kinds."""
        return any(kind.partition(":")[0] == generator for kind in self.kinds)


@dataclass(kw_only=True)
class ConceptOptions(CaptionOptions):
    """Noun phrases of captions (C2LIP).

    Attributes:
        parser: spacy:NAME or rules.
        max_concepts: keep a caption's first N and count the others; by default all.
    """

    what: ClassVar[str] = "concepts"
    parser: str = DEFAULT_PARSER
    max_concepts: int | None = None


@dataclass(kw_only=True)
class NeighbourOptions(BuildOptions):
    """Nearest images (NegCLIP).

    Attributes:
        model: Hub id or folder of the embedding model.
        number: neighbours of an image.
        by: what is compared.
        device: such as cpu or cuda:1; by default a GPU where there is one.
    """

    what: ClassVar[str] = "neighbours"
    model: str
    number: int = 3
    by: ComparedBy = "image"
    device: str | None = None
