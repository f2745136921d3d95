"""Options of language models that write captions, names and phrases."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import Field

from hfcomp.options import THIS_MACHINE, Amount, Count, Options, Size, Spelling, declared_options
from hfcomp.reading import parse_json

_SET_BY_HFCOMP = {"model": " Use --llm instead.", "messages": "", "stream": "", "stream_options": "", "n": ""}
"""Request fields that --request_options cannot set, with advice."""
LanguageModel = Annotated[str, Spelling("MODEL"), "Model name on the server, or Hub id or folder for transformers."]
Temperature = Annotated[Amount, "Sampling temperature of the first attempt; each further attempt adds 0.2."]


def parse_request_options(text: str) -> dict[str, Any]:
    """Parses request fields such as `max_tokens=4096,seed=null`, or a JSON object.

    Raises:
        ValueError: For any other text, and for fields that hfcomp sets itself.
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
        raise ValueError(f"--request_options: {wrong[0]} is not a valid JSON number, {expected}.")
    for name in sorted(_SET_BY_HFCOMP.keys() & values):
        raise ValueError(f"--request_options: {name} cannot be set.{_SET_BY_HFCOMP[name]} Remove it.")
    return values


def _json_or_text(value: str) -> Any:
    try:
        return parse_json(value)
    except ValueError:
        return value


def check_writer(
    writer: str, base_url: str | None, request_options: str, instead: str = "--writer transformers with a small --llm"
) -> None:
    """Raises ValueError for an endpoint without an address or with a password in it.

    The error suggests `instead`, which needs no address. Raises ImportError if the endpoint's package is missing.
    """
    from hfcomp.factory.writers.endpoint import check_base_url, check_installed

    if writer == "endpoint":
        if not base_url:
            raise ValueError(
                f"--writer endpoint needs --base_url, such as http://127.0.0.1:8000/v1 of vLLM. Or choose {instead}."
            )
        check_base_url(base_url)
        check_installed()
    elif base_url:
        raise ValueError(f"--base_url works only with --writer endpoint; found --writer {writer}.")
    if parse_request_options(request_options) and writer != "endpoint":
        raise ValueError(f"--request_options works only with --writer endpoint; found --writer {writer}. Remove it.")


@dataclass(kw_only=True)
class LanguageModelOptions(Options):
    """Language model."""

    base_url: Annotated[
        str | None,
        THIS_MACHINE,
        "Address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1; an API key is read only from "
        "HFCOMP_LLM_API_KEY.",
    ] = None
    llm: LanguageModel = "Qwen/Qwen3-32B"
    temperature: Temperature = 0.7
    attempts: Annotated[
        Count, "Number of answers in a row that may be rejected before a caption is left without one."
    ] = 3
    thinking: Annotated[
        Literal["off", "as_served"],
        "off turns thinking off through chat_template_kwargs, which vLLM supports; as_served leaves it as the server "
        "sets it.",
    ] = "off"
    plain_answers: Annotated[bool, "Request plain text instead of JSON, for servers without structured output."] = (
        False
    )
    request_options: Annotated[
        str,
        "Fields to add to the request, to replace in it or, with the value null, to remove from it, for example "
        "max_tokens=4096,seed=null; or JSON.",
    ] = ""
    concurrency: Annotated[Count, THIS_MACHINE, "Concurrent requests."] = 64
    retries: Annotated[Size, THIS_MACHINE, "Retries of a failed request, with growing pauses."] = 5
    llm_timeout: Annotated[
        float, Field(gt=0), THIS_MACHINE, "Timeout per answer in seconds: connection, headers and body together."
    ] = 120.0
    answer_cache: Annotated[
        str | None, THIS_MACHINE, Spelling("DIR"), "Folder of cached answers (default: HF_HOME/hfcomp/answers)."
    ] = None
    llm_batch_size: Annotated[Count, THIS_MACHINE, "Requests per transformers batch."] = 16

    def reject_model_options(self, *others: str, used: Collection[str] = ()) -> None:
        """Raises ValueError for options, these and `others`, that have no effect without a language model.

        Args:
            used: Options that something else uses, such as an encoder's server.
        """
        options = declared_options(type(self))
        for name in (*declared_options(LanguageModelOptions), *others):
            if name not in used and getattr(self, name) != options[name].default:
                raise ValueError(f"--{name} has no effect: --writer {self.writer} uses no language model. Remove it.")

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
        "endpoint queries the server at base_url; transformers runs a small model in this process; substitute "
        "replaces the keyword with another word of its group and needs no model.",
    ] = "endpoint"
