"""What a build is asked for; the fields are those of `hfcomp build`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from hfcomp.data.publishing import without_local_paths
from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.generation.runner import ROWS_PER_SHARD
from hfcomp.parsing import DEFAULT_PARSER

NEIGHBOURS_OF = ("image", "caption")
# Fields that say where and how a set is built, and not what is in it.
OF_THIS_MACHINE = ("source", "output", "num_workers", "device", "url_timeout")


@dataclass(kw_only=True)
class BuildOptions:
    """What all builds are asked for.

    Attributes:
        source: Hub id, folder, or JSON-lines file.
        output: folder of the built set.
        split: of the source.
        config: the source's configuration.
        column_names: hfcomp's name=its name, as `caption=text`; or JSON.
        columns: of the source, to keep besides those needed, comma-separated; None keeps all.
        limit: read the first rows only.
        captions: where a row has a list of captions, `longest` or `all`.
        captions_file: captions to join by key: JSON, CSV or Parquet.
        key_column: of the source, by which they are joined.
        captions_columns: of this file, as `key,caption`.
        shard_size: rows of the source a file.
        num_workers: processes.
        allow_urls: whether images that the data names by URL may be fetched; see `hfcomp.data.urls`.
        url_timeout: seconds for one of them.
        allow_outside_files: copy image files outside of the source's folder too.
        device: of models, such as `cpu` or `cuda:1`; by default a GPU where there is one.
    """

    what: ClassVar[str]
    source: str
    output: Path
    split: str = "train"
    config: str | None = None
    column_names: str = ""
    columns: str | None = None
    limit: int | None = None
    captions: str = "longest"
    captions_file: str | None = None
    key_column: str | None = None
    captions_columns: str | None = None
    shard_size: int = ROWS_PER_SHARD
    num_workers: int = 1
    allow_urls: bool = False
    url_timeout: float = DEFAULT_TIMEOUT
    allow_outside_files: bool = False
    device: str | None = None

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
class NegativeOptions(BuildOptions):
    """What a build of hard negative captions is asked for.

    Attributes:
        kinds: in turn: `keyword`, `swap`, `mask`, or a part as `keyword:color`.
        num_negatives: for each caption.
        seed: another one draws other negatives.
        parser: of swap and mask: `spacy:NAME` or `rules`.
        fill_model: masked language model of mask.
        keyword_table: YAML of own concepts instead of the paper's.
        keyword_matching: `paper`, or `extended` with plurals and a/an.
        drop_same_words: drop texts of the caption's words reordered.
        grammar_model: drop what this causal language model finds broken.
        grammar_tolerance: nats per token that a negative may lose.
        false_negative_model: drop what this model finds true of the image.
        false_negative_margin: the lead in cosine that it takes.
        only_with_negative: leave captions without any negative out.
    """

    what: ClassVar[str] = "negatives"
    kinds: tuple[str, ...] = ("keyword",)
    num_negatives: int = 1
    seed: int = 0
    parser: str = DEFAULT_PARSER
    fill_model: str | None = None
    keyword_table: str | None = None
    keyword_matching: str = "paper"
    drop_same_words: bool = False
    grammar_model: str | None = None
    grammar_tolerance: float | None = None
    false_negative_model: str | None = None
    false_negative_margin: float = 0.0
    only_with_negative: bool = False


@dataclass(kw_only=True)
class ConceptOptions(BuildOptions):
    """What a build of noun phrases is asked for.

    Attributes:
        parser: `spacy:NAME` or `rules`.
        max_concepts: keep a caption's first ones and count the others; None keeps all.
    """

    what: ClassVar[str] = "concepts"
    parser: str = DEFAULT_PARSER
    max_concepts: int | None = None


@dataclass(kw_only=True)
class NeighbourOptions(BuildOptions):
    """What a build of nearest images is asked for.

    Attributes:
        model: Hub id or folder of the embedding model.
        number: neighbours of an image.
        by: what is compared, one of `NEIGHBOURS_OF`.
    """

    what: ClassVar[str] = "neighbours"
    model: str
    number: int = 3
    by: str = "image"
