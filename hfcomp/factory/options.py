"""What is built, and how; the fields are the options of `hfcomp build`, their descriptions its help."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from hfcomp.data.built_sets.files import ROWS_PER_SHARD
from hfcomp.data.publishing import without_local_paths
from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.parsing import DEFAULT_PARSER
from hfcomp.parsing.tokens import CaptionChoice
from hfcomp.reading import parse_json

# Fields that say where, how and how far a set is built, and not what is in its rows.
OF_THIS_MACHINE = (
    *("source", "output", "executor", "num_workers", "gpus_per_worker", "device", "url_timeout"),
    *("base_url", "concurrency", "retries", "llm_timeout", "llm_batch_size", "answer_cache"),
    *("configs", "until"),
)
RENAME = "--column_names {0}=<its name in your data set>"
"""How a column is named on the command line."""
NUMBERS = (
    *("limit", "shard_size", "num_workers", "num_negatives", "max_concepts", "number"),
    *("attempts", "concurrency", "llm_batch_size", "top_k"),
)
"""Fields that are 1 or more."""
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


@dataclass(kw_only=True)
class BuildOptions:
    """Source and output.

    Attributes:
        source: Hub id, folder (of COCO or of images with captions too), or file: CSV, TSV, JSON lines, JSON, Parquet.
        output: folder of the built set.
        split: of the source.
        config: the source's configuration.
        column_names: hfcomp's name=the source's name, as caption=text; or JSON.
        columns: of the source, to keep besides license and those needed, comma-separated; by default all.
        limit: read the first N rows only.
        shard_size: rows of the source per file.
        executor: local, or ray: on a Ray cluster whose machines share the output folder and the source's files.
        num_workers: processes, or actors on Ray.
        gpus_per_worker: on Ray; by default one where the cluster has any.
        allow_urls: fetch images that the data names by URL; only for data you trust.
        url_timeout: seconds for one image.
        allow_outside_files: also copy image files from outside the source's folder.
        only_adaptable: leave out rows whose licence allows no adaptation or is unknown; needed to publish the set.
    """

    what: ClassVar[str]
    steps: ClassVar[tuple[str, ...]] = ()
    source: str
    output: Path
    split: str = "train"
    config: str | None = None
    column_names: str = ""
    columns: str | None = None
    limit: int | None = None
    shard_size: int = ROWS_PER_SHARD
    executor: ExecutorName = "local"
    num_workers: int = 1
    gpus_per_worker: float | None = None
    allow_urls: bool = False
    url_timeout: float = DEFAULT_TIMEOUT
    allow_outside_files: bool = False
    only_adaptable: bool = False

    def __post_init__(self) -> None:
        for name in NUMBERS:
            number = getattr(self, name, None)
            if number is not None and number < 1:
                raise ValueError(f"{name}: found {number}, expected 1 or more.")
        Workers(self.executor, self.num_workers, self.gpus_per_worker)

    def running(self, progress: bool) -> dict[str, Any]:
        """The arguments of `run_stages` that change nothing in the set but its division into files."""
        names = {"executor", "num_workers", "gpus_per_worker"}
        return {name: getattr(self, name) for name in names} | {
            "rows_per_shard": self.shard_size,
            "progress": progress,
        }

    def runs(self, step: str) -> bool:
        """Whether a step of a dataset that takes several is run: those up to the field `until`."""
        return self.steps.index(step) <= self.steps.index(self.until)

    def words(self) -> list[str]:
        """The command that builds the set, without places on this machine and what changes nothing in its rows."""
        words = ["hfcomp", "build", self.what, "--source", without_local_paths(self.source)]
        for field in fields(self):
            value = getattr(self, field.name)
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            if field.name in OF_THIS_MACHINE or value == field.default or not field.init:
                continue
            words += [f"--{field.name}"] if value is True else [f"--{field.name}", without_local_paths(text)]
        return words


def command_line(words: Sequence[str]) -> str:
    """A command as a card shows it."""
    return f"{shlex.join(words)} --output DIR"


@dataclass(kw_only=True)
class CaptionOptions(BuildOptions):
    """Captions.

    Attributes:
        captions: used of a row with a list of captions.
        captions_file: captions to join by key: JSON, CSV or Parquet.
        key_column: of the source, such as json.url; by default __key__.
        captions_columns: of captions_file; by default key,caption.
    """

    captions: CaptionChoice = "longest"
    captions_file: str | None = None
    key_column: str | None = None
    captions_columns: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.captions_file and (self.key_column or self.captions_columns):
            raise ValueError("--key_column and --captions_columns need --captions_file.")

    @property
    def reads_english(self) -> bool:
        """Whether something reads the captions that knows no other language."""
        return True


@dataclass(kw_only=True)
class CopiedImageOptions(BuildOptions):
    """Damaged images.

    Attributes:
        skip_damaged: leave out rows with an image that cannot be decoded, and count them; otherwise the first one ends
            the build.
    """

    skip_damaged: bool = False

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
class LanguageModelOptions:
    """Language model.

    Attributes:
        base_url: of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1; a key is read from
            HFCOMP_LLM_API_KEY only.
        llm: the server's name of the model, or for transformers a Hub id or folder.
        temperature: of the first attempt; each further one is 0.2 warmer.
        attempts: Answers in a row about a caption that are refused before the caption goes without.
        thinking: off sends chat_template_kwargs, which vLLM knows; as_served sends nothing of the kind.
        plain_answers: for servers without structured output, ask for text instead of JSON.
        request_options: Fields to add to each request, replace or (null) remove, for example
            max_tokens=4096,seed=null; or JSON.
        concurrency: requests at a time.
        retries: of a request that failed, with growing pauses.
        llm_timeout: Seconds for one answer: connection, headers and body together.
        answer_cache: folder of answers by request; by default HF_HOME/hfcomp/answers.
        llm_batch_size: of transformers.
    """

    base_url: str | None = None
    llm: str = "Qwen/Qwen3-32B"
    temperature: float = 0.7
    attempts: int = 3
    thinking: Literal["off", "as_served"] = "off"
    plain_answers: bool = False
    request_options: str = ""
    concurrency: int = 64
    retries: int = 5
    llm_timeout: float = 120.0
    answer_cache: str | None = None
    llm_batch_size: int = 16

    def check_writer(self, instead: str = "--writer transformers with a small --llm") -> None:
        """Raises ValueError for an endpoint without an address or with a password in it, and numbers out of range.

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
        for name in ("temperature", "retries"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name}: found {getattr(self, name)}, expected 0 or more.")
        if not self.llm_timeout > 0:
            raise ValueError(f"llm_timeout: found {self.llm_timeout}, expected more than 0 seconds.")
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
    """Writer of captions.

    Attributes:
        writer: endpoint asks the server at base_url; transformers runs a small model in process; substitute takes
            another word of the keyword's group and needs no model.
    """

    writer: Literal["endpoint", "transformers", "substitute"] = "endpoint"


@dataclass(kw_only=True)
class NegativeOptions(WriterOptions, CopiedImageOptions, CaptionOptions):
    """Hard negative captions: keywords, swaps, mask filling and language models.

    Attributes:
        kinds: in turn, of keyword, swap, mask and llm, or a part of one as keyword:color, swap:nouns, mask:verb,
            llm:replace_obj.
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
        max_without_negative: largest share of captions without a negative, 0 to 1; with more the build fails.
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
    max_without_negative: float = 0.5
    device: str | None = None

    def __post_init__(self) -> None:
        """An option that changes nothing is a mistake."""
        super().__post_init__()
        if not 0 <= self.max_without_negative <= 1:
            raise ValueError(f"max_without_negative: found {self.max_without_negative}, expected a share from 0 to 1.")
        if self.grammar_tolerance is not None and not self.grammar_model:
            raise ValueError("--grammar_tolerance needs --grammar_model, such as openai-community/gpt2.")
        if self.false_negative_margin and not self.false_negative_model:
            raise ValueError(
                "--false_negative_margin needs --false_negative_model, such as openai/clip-vit-base-patch32."
            )
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
    """Noun phrases of captions (C2LIP).

    Attributes:
        parser: spacy:NAME or rules.
        max_concepts: keep a caption's first N and count the others; by default all.
    """

    what: ClassVar[str] = "concepts"
    parser: str = DEFAULT_PARSER
    max_concepts: int | None = None


@dataclass(kw_only=True)
class NeighbourOptions(CopiedImageOptions):
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
    by: Literal["image", "caption"] = "image"
    device: str | None = None
