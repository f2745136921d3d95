"""Requests to a language model, and the parsing of its replies, which are not trusted."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol

from pydantic import BaseModel, Field, ValidationError, create_model

from hfcomp.parsing.captions import caption_problem
from hfcomp.reading import parse_json
from hfcomp.schemas import Strict

# Tokens in addition to one per character. Our choice: an English caption has a quarter as many tokens as characters;
# other scripts have up to as many.
_TOKENS_BESIDES = 64


# Kinds of answers: the name of the JSON answer, which is also the name of a single field.
AnswerField = Literal["caption", "concept", "edit", "phrases"]


class EditAnswer(Strict):
    """An image edit: what to segment, what to paint there, and the caption of the edited image."""

    mask: str
    paint: str
    caption: str


_SINGLE: dict[str, Any] = {"caption": str, "concept": str, "phrases": list[str]}
ANSWERS: Mapping[AnswerField, type[BaseModel]] = {
    **{name: create_model(name, __base__=Strict, **{name: (kind, ...)}) for name, kind in _SINGLE.items()},
    "edit": EditAnswer,
}


def answer_schema(field: AnswerField) -> dict[str, Any]:
    """The JSON schema of an answer for `response_format`."""
    fields, string = ANSWERS[field].model_fields, {"type": "string"}
    kinds = {str: string, list[str]: {"type": "array", "items": string}}
    return {
        "name": field,
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {name: kinds[entry.annotation] for name, entry in fields.items()},
            "required": list(fields),
            "additionalProperties": False,
        },
    }


@dataclass(frozen=True)
class Request:
    """A request.

    Attributes:
        seed: Random seed for sampling, if the server supports one.
        temperature: Sampling temperature; 0 takes the most likely token.
        field: Kind of the JSON answer; writers of plain text ignore it.
    """

    prompt: str
    seed: int
    temperature: float
    max_tokens: int
    field: AnswerField = "caption"


@dataclass(frozen=True)
class Reply:
    """A text, or the reason for its absence.

    Attributes:
        is_final: Whether the same request would get the same reply; False for a failed server.
    """

    text: str = ""
    problem: str | None = None
    is_final: bool = True


class Writer(Protocol):
    """A language model that answers requests."""

    def payload(self, request: Request) -> dict[str, Any]:
        """Returns everything that determines the answer, as JSON values without secrets."""
        ...

    def replies(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields the place and reply of each request in order of arrival."""
        ...


def content_hash(payload: Mapping[str, Any]) -> str:
    """The key of a request, equal for equal content."""
    return hashlib.sha256(json.dumps(payload, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def token_budget(text: str) -> int:
    """Maximum number of tokens of an answer that repeats a text with a change."""
    return _TOKENS_BESIDES + len(text)


# Maximum size of a reply's body in bytes. Our choice: a hundred times what the longest caption needs.
MOST_BYTES = 1_000_000
REFUSED, CUT, TOO_LARGE = "model refused", "answer cut off", "answer too long"
# Precedes reasoning without an answer.
OPENS_THOUGHTS = "<think>"
_SHOWN = 4096  # bytes of a wrong body that are searched for the key; 60 of them are shown


class BadBody(Exception):
    """A body is not a chat completion.

    Args:
        body: Received bytes, which may contain the key. Only `_SHOWN` of them are kept.
    """

    def __init__(self, reason: str, body: bytes = b"") -> None:
        self.reason, self.body = reason, body[:_SHOWN]
        super().__init__(reason, self.body)


class BrokenOff(BadBody):
    """A body broke off or exceeded the timeout."""


class _Part(BaseModel):
    type: str = ""
    text: str = ""


class _Message(BaseModel):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    """The fields of a chat completion that are read."""

    choices: list[_Choice] = Field(min_length=1)


def read_completion(body: bytes | None) -> Reply:
    """Reads the answer in a body.

    Args:
        body: Bytes of the body, or None if it was larger than `MOST_BYTES`.

    Raises:
        BadBody: If the body is not a chat completion.
    """
    if body is None:
        return Reply(problem=TOO_LARGE)
    try:
        choice = _Completion.model_validate(parse_json(body)).choices[0]
    except (ValueError, ValidationError):
        raise BadBody("expected a chat completion", body) from None
    message = choice.message
    if message.refusal:
        return Reply(problem=REFUSED)
    if choice.finish_reason == "length":
        return Reply(problem=CUT)
    content = message.content or ""
    if not isinstance(content, str):  # a list of parts, some of which may be thoughts
        content = "".join(part.text for part in content if part.type in ("text", "output_text"))
    thoughts = message.reasoning_content or message.reasoning or ""
    return Reply(f"{OPENS_THOUGHTS}{thoughts}" if thoughts and not content.strip() else content)


ONLY_THOUGHTS = "only reasoning, no answer"
EMPTY, NOT_JSON, CONTROL = "empty answer", "not the JSON that was asked for", "control characters"
NOT_LINES, NOT_A_LIST = "not the lines that were asked for", "not a list of phrases"
SEVERAL_LINES, MARKUP, LEAKED = "several lines", "markup", "repeats the prompt"
REFUSAL, LONG = "refuses in words", "longer than a caption"

_THOUGHTS_END = re.compile(
    r"</(?:\w+:)?(?:think(?:ing)?|thought|reasoning)>|\[/THINK\]|<\|(?:END_THINKING|end_of_thought)\|>|◁/think▷"
)
_THOUGHTS_START = re.compile(
    r"<(?:\w+:)?(?:think(?:ing)?|thought|reasoning)>|\[THINK\]|<\|(?:START_THINKING|begin_of_thought)\|>|◁think▷"
)
_CHANNEL, _MESSAGE, _MESSAGE_END = "<|channel|>", "<|message|>", re.compile(r"<\|(?:return|end|call)\|>")
# Start and end of channels in the text of a server that drops their special tokens.
_BARE_CHANNELS = "analysis", "assistantfinal"
_ITEM = re.compile(r"\s*(?:\d+[.)]|[-*•])\s+(\S.*)")  # of a numbered list, or one with bullets
_NONE = "none"  # an answer without phrases
_OBJECT = re.compile(r"\{[^{}]*\}")
_MOST_OBJECTS = 100
_FENCE = "```"
_MARKUP = re.compile(r"</?[a-z!][^>]*>|```|\*\*|\]\(", re.IGNORECASE)
_LEAKED = re.compile(r"\b(?:input|output|keyword|caption|instruction|examples?|task)\b\W{0,3}:", re.IGNORECASE)
_REFUSAL = re.compile(
    r"(?:i['’]?m (?:sorry|unable|not able)|i (?:am sorry|can(?:no|['’])?t|am (?:unable|not able)|apologi[sz]e)"
    r"|i won['’]t|sorry\b|as an ai\b|unfortunately,? i\b|i must decline)",
    re.IGNORECASE,
)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»"}
# Format characters can reverse or hide text. These two join letters and emoji and are parts of words.
_HARMLESS = frozenset("\u200c\u200d")


class Refused(Exception):
    """An answer is not used. The message is one of the reasons."""


class Unreadable(Refused):
    """A reply has no answer in the requested form. The server or the request may be wrong."""


def answered_text(reply: Reply, *, plain: bool, field: AnswerField = "caption") -> str:
    """Reads the caption or concept name in a reply.

    Args:
        plain: Whether the answer is plain text instead of JSON of one of `ANSWERS`.

    Raises:
        Refused: If the answer cannot be used, with the reason.
    """
    return _clean_text(_fields(reply, field, (lambda text: {field: text}) if plain else None)[field])


def answered_edit(reply: Reply, *, plain: bool) -> EditAnswer:
    """Reads the edit in a reply, see `answered_text`. A plain answer has lines `name: text`, in any order."""
    fields = _fields(reply, "edit", _read_lines if plain else None)
    return EditAnswer(**{name: _clean_text(value) for name, value in fields.items()})


def answered_phrases(reply: Reply, *, plain: bool) -> list[str]:
    """Reads the phrases in a reply, see `answered_text`; there may be none.

    A plain answer is a list with one phrase per line, numbered or with bullets.
    """
    texts = _fields(reply, "phrases", _read_items if plain else None)["phrases"]
    return [] if [entry.strip(" .").casefold() for entry in texts] == [_NONE] else list(map(_clean_text, texts))


def _fields(reply: Reply, field: AnswerField, read_plain: Callable[[str], dict[str, Any]] | None) -> dict[str, Any]:
    """The fields of an answer in JSON, or those that a function reads from its plain text."""
    text, is_thought = _text(reply)
    if read_plain is None:
        return _read_object(text, field, is_thought)
    if is_thought:
        raise Unreadable(ONLY_THOUGHTS)
    return read_plain(_strip_fence(text))


def _text(reply: Reply) -> tuple[str, bool]:
    """The text after the model's reasoning, or all reasoning if there is nothing else, and whether it is reasoning."""
    if reply.problem:
        raise Unreadable(reply.problem)
    text = reply.text
    # Models that write channels also reason in channels. Only the final channel is an answer.
    if _CHANNEL in text:
        name, _, message = text.rpartition(_CHANNEL)[2].partition(_MESSAGE)
        text = _MESSAGE_END.split(message, 1)[0]
        if not name.strip().startswith("final"):
            return text, True
    elif text.startswith(_BARE_CHANNELS[0]) and _BARE_CHANNELS[1] in text:
        text = text.rpartition(_BARE_CHANNELS[1])[2]
    # Everything up to the last end of reasoning is removed, because some servers drop its start.
    ends = [match.span() for match in _THOUGHTS_END.finditer(text)]
    thoughts, text = (text[: ends[-1][0]], text[ends[-1][1] :]) if ends else ("", text)
    if not text.strip():
        raise Unreadable(ONLY_THOUGHTS if _THOUGHTS_START.sub("", thoughts).strip() else EMPTY)
    return text, _THOUGHTS_START.match(text.lstrip()) is not None


def _read_object(text: str, field: AnswerField, is_thought: bool) -> dict[str, Any]:
    """The single object in an answer, also inside prose. Inside reasoning it must be at the end."""
    # Models put the object into prose or a fence, or repeat it. Two different objects are not an answer.
    answers = [_read_json(part, field) for part in (text, *_objects(text))]
    valid = [answer for answer in answers if answer is not None]
    is_one = bool(valid) and all(answer == valid[0] for answer in valid)
    if is_one and (not is_thought or text.rstrip("` \n").endswith("}")):
        return valid[0]
    if is_thought:
        raise Unreadable(ONLY_THOUGHTS)
    raise Unreadable(REFUSAL if _REFUSAL.match(text.lstrip()) else NOT_JSON)


def _read_json(text: str, field: AnswerField) -> dict[str, Any] | None:
    try:
        return ANSWERS[field].model_validate(parse_json(text)).model_dump()
    except (ValueError, ValidationError):
        return None


def _objects(text: str) -> list[str]:
    """The texts that may be JSON objects; empty if there are too many for an answer."""
    objects = list(islice((match.group() for match in _OBJECT.finditer(text)), _MOST_OBJECTS + 1))
    return objects if len(objects) <= _MOST_OBJECTS else []


def _strip_fence(text: str) -> str:
    inner = text.strip()
    if len(inner) < 2 * len(_FENCE) or not (inner.startswith(_FENCE) and inner.endswith(_FENCE)):
        return text
    first, _, rest = inner[len(_FENCE) : -len(_FENCE)].partition("\n")
    return rest if re.fullmatch(r"\w*\s*", first) else f"{first}\n{rest}"


def _read_lines(text: str) -> dict[str, str]:
    lines = [line.partition(":") for line in text.strip().splitlines() if line.strip()]
    fields = {name.strip().casefold(): value for name, _, value in lines}
    if len(fields) != len(lines) or {*fields} != {*EditAnswer.model_fields}:
        raise Unreadable(REFUSAL if _REFUSAL.match(text.lstrip()) else NOT_LINES)
    return fields


def _read_items(text: str) -> dict[str, list[str]]:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].rstrip().endswith(":"):  # "Here are the phrases:"
        del lines[0]
    items = [match[1].rstrip() for match in map(_ITEM.fullmatch, lines) if match]
    if len(lines) == 1 and lines[0].strip(" .").casefold() == _NONE:
        items = [_NONE]
    if len(items) == len(lines):
        return {"phrases": items}
    raise Unreadable(REFUSAL if _REFUSAL.match(text.lstrip()) else NOT_A_LIST)


def _clean_text(text: str) -> str:
    return _check_text(_strip_quotes(text.strip()))


def _strip_quotes(text: str) -> str:
    is_quoted = len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and text.count(text[0]) <= 2
    return text[1:-1].strip() if is_quoted else text


def _check_text(text: str) -> str:
    """Returns the text if it may be a caption. The most informative reasons are checked first."""
    if not text:
        raise Unreadable(EMPTY)
    if caption_problem(text):
        raise Unreadable(LONG)
    if _REFUSAL.match(text):
        raise Unreadable(REFUSAL)
    if _LEAKED.search(text):
        raise Unreadable(LEAKED)
    if len(text.splitlines()) > 1:
        raise Unreadable(SEVERAL_LINES)
    if any(unicodedata.category(sign) in ("Cc", "Cf", "Co", "Cn") and sign not in _HARMLESS for sign in text):
        raise Unreadable(CONTROL)
    if _MARKUP.search(text):
        raise Unreadable(MARKUP)
    return text
