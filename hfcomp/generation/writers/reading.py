"""From what a language model replied to a caption or name in it, or the reason why there is none."""

from __future__ import annotations

import re
import unicodedata

from pydantic import ValidationError

from hfcomp.generation.writers.requests import ANSWERS, AnswerField, EditAnswer, Reply
from hfcomp.parsing.captions import caption_problem
from hfcomp.reading import parse_json

EMPTY, NOT_JSON, CONTROL = "empty answer", "not the JSON that was asked for", "control characters"
NOT_LINES = "not the lines that were asked for"
SEVERAL_LINES, MARKUP, LEAKED = "several lines", "markup", "repeats the prompt"
REFUSAL, LONG = "refuses in words", "longer than a caption"

_THOUGHT = re.compile(r"\s*<think>.*?</think>\s*", re.DOTALL)
_FENCE = re.compile(r"\s*```(?:json)?\s*(.*?)\s*```\s*", re.DOTALL)
_MARKUP = re.compile(r"</?[a-z!][^>]*>|```|\*\*|\]\(", re.IGNORECASE)
_LEAKED = re.compile(r"\b(?:input|output|keyword|caption|instruction|examples?|task)\b\W{0,3}:", re.IGNORECASE)
_REFUSAL = re.compile(
    r"(?:i['’]?m (?:sorry|unable|not able)|i (?:am sorry|can(?:no|['’])?t|am (?:unable|not able)|apologi[sz]e)"
    r"|i won['’]t|sorry\b|as an ai\b|unfortunately,? i\b|i must decline)",
    re.IGNORECASE,
)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»"}
# Format characters turn text around or hide it; those of joined letters and emoji are part of words.
_HARMLESS = frozenset("\u200c\u200d")


class Refused(Exception):
    """An answer that is not used; the message is one of the reasons."""


def answered_text(reply: Reply, *, plain: bool, field: AnswerField = "caption") -> str:
    """The caption, or the name of a concept, in a reply.

    Args:
        reply: of a writer.
        plain: whether the answer is the text itself and not JSON of one of `ANSWERS`.
        field: of that JSON.

    Raises:
        Refused: with the reason.
    """
    text = _text(reply)
    return _clean(text if plain else _from_json(text, field)[field])


def answered_edit(reply: Reply, *, plain: bool) -> EditAnswer:
    """The edit in a reply.

    Args:
        reply: of a writer.
        plain: whether the answer has a line `name: text` for each field, in any order, and not JSON.

    Raises:
        Refused: with the reason.
    """
    text = _text(reply)
    found = _from_lines(text) if plain else _from_json(text, "edit")
    return EditAnswer(**{name: _clean(value) for name, value in found.items()})


def _text(reply: Reply) -> str:
    if reply.problem:
        raise Refused(reply.problem)
    text = _THOUGHT.sub("", reply.text, count=1) if reply.text.lstrip().startswith("<think>") else reply.text
    if not text.strip():
        raise Refused(EMPTY)
    return text


def _from_json(text: str, field: AnswerField) -> dict[str, str]:
    fenced = _FENCE.fullmatch(text)
    try:
        return ANSWERS[field].model_validate(parse_json(fenced[1] if fenced else text)).model_dump()
    except (ValueError, ValidationError):
        if _REFUSAL.match(text.lstrip()):
            raise Refused(REFUSAL) from None
        raise Refused(NOT_JSON) from None


def _from_lines(text: str) -> dict[str, str]:
    lines = [line.partition(":") for line in text.strip().splitlines() if line.strip()]
    found = {name.strip().casefold(): value for name, _, value in lines}
    if len(found) != len(lines) or {*found} != {*EditAnswer.model_fields}:
        raise Refused(REFUSAL if _REFUSAL.match(text.lstrip()) else NOT_LINES)
    return found


def _clean(text: str) -> str:
    return _checked(_unquoted(text.strip()))


def _unquoted(text: str) -> str:
    is_quoted = len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and text.count(text[0]) <= 2
    return text[1:-1].strip() if is_quoted else text


def _checked(text: str) -> str:
    """The text itself, if it may be a caption. The order is that of what is most telling to be counted."""
    if not text:
        raise Refused(EMPTY)
    if caption_problem(text):
        raise Refused(LONG)
    if _REFUSAL.match(text):
        raise Refused(REFUSAL)
    if _LEAKED.search(text):
        raise Refused(LEAKED)
    if len(text.splitlines()) > 1:
        raise Refused(SEVERAL_LINES)
    if any(unicodedata.category(sign) in ("Cc", "Cf", "Co", "Cn") and sign not in _HARMLESS for sign in text):
        raise Refused(CONTROL)
    if _MARKUP.search(text):
        raise Refused(MARKUP)
    return text
