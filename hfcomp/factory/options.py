"""What is built, and how: the options of `hfcomp build`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from hfcomp.data.built_sets.files import ROWS_PER_SHARD
from hfcomp.data.publishing import without_local_paths
from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.options import (
    THIS_MACHINE,
    AllowUrls,
    Amount,
    Count,
    Device,
    Needs,
    Options,
    Share,
    Size,
    Spelling,
    UrlTimeout,
    declared_options,
)
from hfcomp.parsing import DEFAULT_PARSER
from hfcomp.parsing.tokens import CaptionChoice
from hfcomp.reading import parse_json

RENAME = "--column_names {0}=<its name in your dataset>"
"""How a column is named on the command line."""
_SET_BY_HFCOMP = {"model": " Use --llm instead.", "messages": "", "stream": "", "stream_options": "", "n": ""}
"""Fields of a request that --request_options cannot set, and what does."""


ExecutorName = Literal["local", "ray"]


@dataclass(frozen=True)
class Workers:
    """What makes the shards of a build; nothing of it changes the result.

    Attributes:
        executor: `local`, processes of this machine, or `ray`, actors of a Ray cluster.
        number: of them.
        gpus: of each, on Ray; by default one where the cluster has any.
    """

    executor: ExecutorName = "local"
    number: int = 1
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.executor not in get_args(ExecutorName):
            raise ValueError(f"executor is {self.executor!r}; expected {' or '.join(get_args(ExecutorName))}.")
        if self.number < 1:
            raise ValueError(f"num_workers is {self.number}; expected 1 or more.")
        if self.gpus is not None and self.executor != "ray":
            raise ValueError("gpus_per_worker needs executor ray; local workers take this machine's GPUs in turn.")
        if self.gpus is not None and self.gpus < 0:
            raise ValueError(f"gpus_per_worker is {self.gpus:g}; expected 0 or more.")


Source = Annotated[
    str,
    THIS_MACHINE,
    "Hub id, folder (of COCO or of images with captions too), or file: CSV, TSV, JSON lines, JSON, Parquet.",
]
ColumnNames = Annotated[
    str, Spelling("OURS=YOURS"), "hfcomp's name=the source's name of columns, as caption=text; or JSON."
]
Parser = Annotated[str, "Parser of captions: spacy:NAME or rules."]
GrammarTolerance = Annotated[
    float | None,
    Needs("grammar_model", advice=", such as openai-community/gpt2"),
    "Nats per token that a negative may lose.",
]


@dataclass(kw_only=True)
class BuildOptions(Options):
    """Source and output."""

    what: ClassVar[str]
    steps: ClassVar[tuple[str, ...]] = ()
    source: Source
    output: Annotated[Path, THIS_MACHINE, "Folder of the built set."]
    split: Annotated[str, "Split of the source."] = "train"
    config: Annotated[str | None, "Configuration of the source."] = None
    column_names: ColumnNames = ""
    columns: Annotated[
        str | None,
        "Columns of the source to keep besides license and those needed, comma-separated; by default all.",
    ] = None
    limit: Annotated[Count | None, "Read the first N rows only."] = None
    shard_size: Annotated[Count, "Rows of the source per file."] = ROWS_PER_SHARD
    executor: Annotated[
        ExecutorName,
        THIS_MACHINE,
        "local, or ray: on a Ray cluster whose machines share the output folder and the source's files.",
    ] = "local"
    num_workers: Annotated[Count, THIS_MACHINE, "Processes, or actors on Ray."] = 1
    gpus_per_worker: Annotated[
        Amount | None,
        THIS_MACHINE,
        Needs("executor", "ray", "; local workers take this machine's GPUs in turn"),
        "GPUs of each actor on Ray; by default one if the cluster has any.",
    ] = None
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT
    allow_outside_files: Annotated[bool, "Also copy image files from outside the source's folder."] = False
    only_adaptable: Annotated[
        bool,
        "Leave out rows whose license allows no adaptation or is unknown; needed to publish the set.",
    ] = False

    def running(self, progress: bool) -> dict[str, Any]:
        """The arguments of `run_stages` that change nothing in the set but its division into files."""
        names = {"executor", "num_workers", "gpus_per_worker"}
        return {name: getattr(self, name) for name in names} | {
            "rows_per_shard": self.shard_size,
            "progress": progress,
        }

    @classmethod
    def runs(cls, step: str, until: str) -> bool:
        """Whether a step of a dataset that takes several is run, which ends with the step `until`."""
        return cls.steps.index(step) <= cls.steps.index(until)

    def words(self) -> list[str]:
        """The command that builds the set, without places on this machine and what changes nothing in its rows."""
        words = ["hfcomp", "build", self.what, "--source", without_local_paths(self.source)]
        for option in declared_options(type(self)).values():
            value = getattr(self, option.name)
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            if option.is_recorded and value != option.default:
                words += [f"--{option.name}"] if value is True else [f"--{option.name}", without_local_paths(text)]
        return words


def command_line(words: Sequence[str]) -> str:
    """A command as a card shows it."""
    return f"{shlex.join(words)} --output DIR"


@dataclass(kw_only=True)
class CaptionOptions(BuildOptions):
    """Captions."""

    captions: Annotated[CaptionChoice, "Which are used of a row with a list of captions."] = "longest"
    captions_file: Annotated[
        str | None, Spelling("FILE"), "File of captions to join by key: JSON, CSV or Parquet."
    ] = None
    key_column: Annotated[
        str | None, Needs("captions_file"), "Column of the source with the key, such as json.url; by default __key__."
    ] = None
    captions_columns: Annotated[
        str | None, Needs("captions_file"), "Columns of captions_file; by default key,caption."
    ] = None

    reads_english: ClassVar[bool] = True
    """Whether something reads the captions that knows no other language."""


@dataclass(kw_only=True)
class CopiedImageOptions(BuildOptions):
    """Damaged images."""

    skip_damaged: Annotated[
        bool,
        "Leave out rows with an image that cannot be decoded, and count them; otherwise the first one ends the build.",
    ] = False

    def running(self, progress: bool) -> dict[str, Any]:
        """Also what becomes of damaged images, which changes nothing in the set but the rows that it lacks."""
        return super().running(progress) | {"skip_damaged": self.skip_damaged}


def parse_request_options(text: str) -> dict[str, Any]:
    """Reads `max_tokens=4096,seed=null`, or a JSON object, as fields of requests.

    Raises:
        ValueError: for anything else, and for fields that hfcomp sets itself.
    """
    expected = """expected name=value, for example max_tokens=4096,seed=null, or JSON such as '{"seed": null}'"""
    if text.lstrip().startswith("{"):
        try:
            values = parse_json(text)
        except ValueError as error:
            raise ValueError(f"--request_options: {text!r} is not JSON ({error}); {expected}.") from error
    else:
        pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
        if wrong := ["".join(pair) for pair in pairs if not pair[0].strip() or not pair[2].strip()]:
            raise ValueError(f"--request_options: found {wrong[0]!r}, {expected}.")
        values = {name.strip(): _json_or_text(value.strip()) for name, _, value in pairs}
    if wrong := [name for name, value in values.items() if value in (math.inf, -math.inf) or value != value]:
        raise ValueError(f"--request_options: {wrong[0]} is not a number that JSON has, {expected}.")
    for name in sorted(_SET_BY_HFCOMP.keys() & values):
        raise ValueError(f"--request_options: {name} cannot be set.{_SET_BY_HFCOMP[name]} Remove it.")
    return values


def _json_or_text(value: str) -> Any:
    try:
        return parse_json(value)
    except ValueError:
        return value


@dataclass(kw_only=True)
class LanguageModelOptions(Options):
    """Language model."""

    base_url: Annotated[
        str | None,
        THIS_MACHINE,
        "Address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1; a key is read from "
        "HFCOMP_LLM_API_KEY only.",
    ] = None
    llm: Annotated[
        str,
        Spelling("MODEL"),
        "The server's name of the model, or for transformers a Hub id or folder.",
    ] = "Qwen/Qwen3-32B"
    temperature: Annotated[Amount, "Sampling temperature of the first attempt; each further one is 0.2 warmer."] = 0.7
    attempts: Annotated[
        Count, "Answers in a row about a caption that are refused before the caption goes without."
    ] = 3
    thinking: Annotated[
        Literal["off", "as_served"],
        "off sends chat_template_kwargs, which vLLM knows; as_served sends nothing of the kind.",
    ] = "off"
    plain_answers: Annotated[bool, "For servers without structured output, ask for text instead of JSON."] = False
    request_options: Annotated[
        str,
        "Fields to add to each request, replace or (null) remove, for example max_tokens=4096,seed=null; or JSON.",
    ] = ""
    concurrency: Annotated[Count, THIS_MACHINE, "Requests at a time."] = 64
    retries: Annotated[Size, THIS_MACHINE, "Retries of a request that failed, with growing pauses."] = 5
    llm_timeout: Annotated[
        float, Field(gt=0), THIS_MACHINE, "Seconds for one answer: connection, headers and body together."
    ] = 120.0
    answer_cache: Annotated[
        str | None,
        THIS_MACHINE,
        Spelling("DIR"),
        "Folder of answers by request; by default HF_HOME/hfcomp/answers.",
    ] = None
    llm_batch_size: Annotated[Count, THIS_MACHINE, "Requests in a batch of transformers."] = 16

    def check_writer(self, instead: str = "--writer transformers with a small --llm") -> None:
        """Raises ValueError for an endpoint without an address or with a password in it.

        `instead` says, in the error, what needs no address. Raises ImportError for an endpoint without its package.
        The field `writer` is of the classes below this one, as each has other choices.
        """
        from hfcomp.factory.writers.endpoint import check_base_url, check_installed

        if self.writer == "endpoint":
            if not self.base_url:
                raise ValueError(
                    "--writer endpoint needs --base_url, such as http://127.0.0.1:8000/v1 of vLLM. Or choose "
                    f"{instead}."
                )
            check_base_url(self.base_url)
            check_installed()
        elif self.base_url:
            raise ValueError(f"--base_url is of --writer endpoint; found --writer {self.writer}.")
        if parse_request_options(self.request_options) and self.writer != "endpoint":
            raise ValueError(
                f"--request_options works only with --writer endpoint; found --writer {self.writer}. Remove it."
            )

    def writer_settings(self) -> dict[str, Any]:
        """The settings of `hfcomp.factory.writers.llm_client.build_llm_client`."""
        names = [field.name for field in fields(LanguageModelOptions) if field.name != "attempts"]
        settings = {name: getattr(self, name) for name in ("writer", *names)}
        return settings | {"request_options": parse_request_options(self.request_options)}


@dataclass(kw_only=True)
class WriterOptions(LanguageModelOptions):
    """Writer of captions."""

    writer: Annotated[
        Literal["endpoint", "transformers", "substitute"],
        "endpoint asks the server at base_url; transformers runs a small model in process; substitute takes another "
        "word of the keyword's group and needs no model.",
    ] = "endpoint"


@dataclass(kw_only=True)
class NegativeOptions(WriterOptions, CopiedImageOptions, CaptionOptions):
    """Hard negative captions: keywords, swaps, mask filling and language models."""

    what: ClassVar[str] = "negatives"
    kinds: Annotated[
        tuple[str, ...],
        "Kinds in turn, of keyword, swap, mask and llm, or a part of one as keyword:color, swap:nouns, mask:verb, "
        "llm:replace_obj.",
    ] = ("keyword",)
    num_negatives: Annotated[Count, "Negatives of each caption."] = 1
    seed: Annotated[int, "Random seed of all draws."] = 0
    parser: Annotated[Parser, "Parser of swap and mask: spacy:NAME or rules."] = DEFAULT_PARSER
    fill_model: Annotated[str | None, "Masked language model of mask; by default FacebookAI/roberta-base."] = None
    keyword_table: Annotated[
        str | None, Spelling("FILE"), "YAML file of your own concepts instead of the paper's."
    ] = None
    keyword_matching: Annotated[Literal["paper", "extended"], "extended matches plurals too and fixes a/an."] = "paper"
    drop_same_words: Annotated[bool, "Drop texts that reorder the caption's words."] = False
    grammar_model: Annotated[str | None, "Drop texts that this causal language model finds ungrammatical."] = None
    grammar_tolerance: GrammarTolerance = None
    false_negative_model: Annotated[str | None, "Drop texts that this dual encoder finds true of the image."] = None
    false_negative_margin: Annotated[
        float,
        Needs("false_negative_model", advice=", such as openai/clip-vit-base-patch32"),
        "Cosine by which such a text leads the caption.",
    ] = 0.0
    only_with_negative: Annotated[bool, "Leave out captions without a negative."] = False
    max_without_negative: Annotated[
        Share, "Largest share of captions without a negative, 0 to 1; with more the build fails."
    ] = 0.5
    device: Device = None

    def __post_init__(self) -> None:
        """An option that changes nothing is a mistake."""
        super().__post_init__()
        if self.has_kind("llm"):
            self.check_writer()
            if self.writer == "substitute":
                raise ValueError(
                    "--writer substitute needs a keyword, which the kind llm has not. Use --kinds keyword."
                )
        needed = (("fill_model", "mask"), ("keyword_table", "keyword"), ("base_url", "llm"), ("answer_cache", "llm"))
        for name, generator in needed:
            if getattr(self, name) and not self.has_kind(generator):
                raise ValueError(f"--{name} needs the kind {generator}.")

    @property
    def reads_english(self) -> bool:
        """Not where a language model alone writes negatives."""
        return any(kind.partition(":")[0] != "llm" for kind in self.kinds)

    def has_kind(self, generator: str) -> bool:
        """Whether a generator, or a part of it, is among the kinds."""
        return any(kind.partition(":")[0] == generator for kind in self.kinds)


@dataclass(kw_only=True)
class ConceptOptions(CopiedImageOptions, CaptionOptions):
    """Noun phrases of captions (C2LIP)."""

    what: ClassVar[str] = "concepts"
    parser: Parser = DEFAULT_PARSER
    max_concepts: Annotated[Count | None, "Keep a caption's first N and count the others; by default all."] = None


@dataclass(kw_only=True)
class NeighborOptions(CopiedImageOptions):
    """Nearest images (NegCLIP)."""

    what: ClassVar[str] = "neighbors"
    model: Annotated[str, "Hub id or folder of the embedding model."]
    number: Annotated[Count, "Neighbors of an image."] = 3
    by: Annotated[Literal["image", "caption"], "What is compared."] = "image"
    device: Device = None
