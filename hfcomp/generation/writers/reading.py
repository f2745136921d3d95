"""From what a language model replied to a caption or name in it, or the reason why there is none."""

from __future__ import annotations

import re
import unicodedata
from itertools import islice

from pydantic import ValidationError

from hfcomp.generation.writers.requests import ANSWERS, AnswerField, EditAnswer, Reply
from hfcomp.parsing.captions import caption_problem
from hfcomp.reading import parse_json

ONLY_THOUGHTS = "only reasoning, no answer"
EMPTY, NOT_JSON, CONTROL = "empty answer", "not the JSON that was asked for", "control characters"
NOT_LINES = "not the lines that were asked for"
SEVERAL_LINES, MARKUP, LEAKED = "several lines", "markup", "repeats the prompt"
REFUSAL, LONG = "refuses in words", "longer than a caption"

_THOUGHTS_END = re.compile(
    r"</(?:\w+:)?(?:think(?:ing)?|thought|reasoning)>|\[/THINK\]|<\|(?:END_THINKING|end_of_thought)\|>|◁/think▷"
)
_THOUGHTS_START = re.compile(
    r"<(?:\w+:)?(?:think(?:ing)?|thought|reasoning)>|\[THINK\]|<\|(?:START_THINKING|begin_of_thought)\|>|◁think▷"
)
_CHANNEL, _MESSAGE, _MESSAGE_END = "<|channel|>", "<|message|>", re.compile(r"<\|(?:return|end|call)\|>")
_BARE_CHANNELS = "analysis", "assistantfinal"
"""Where channels begin and end in the text of a server that leaves out their special tokens."""
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
# Format characters turn text around or hide it; those of joined letters and emoji are part of words.
_HARMLESS = frozenset("\u200c\u200d")


class Refused(Exception):
    """An answer that is not used; the message is one of the reasons."""


class Unreadable(Refused):
    """A reply without an answer of the form that was asked for: the server or the way of asking may be wrong."""


def answered_text(reply: Reply, *, plain: bool, field: AnswerField = "caption") -> str:
    """The caption, or the name of a concept, in a reply.

    Args:
        reply: of a writer.
        plain: whether the answer is the text itself and not JSON of one of `ANSWERS`.
        field: of that JSON.

    Raises:
        Refused: with the reason.
    """
    text, is_thought = _text(reply)
    if not plain:
        return _clean(_from_json(text, field, is_thought)[field])
    if is_thought:
        raise Unreadable(ONLY_THOUGHTS)
    return _clean(_unfenced(text))


def answered_edit(reply: Reply, *, plain: bool) -> EditAnswer:
    """The edit in a reply.

    Args:
        reply: of a writer.
        plain: whether the answer has a line `name: text` for each field, in any order, and not JSON.

    Raises:
        Refused: with the reason.
    """
    text, is_thought = _text(reply)
    if plain and is_thought:
        raise Unreadable(ONLY_THOUGHTS)
    found = _from_lines(_unfenced(text)) if plain else _from_json(text, "edit", is_thought)
    return EditAnswer(**{name: _clean(value) for name, value in found.items()})


def _text(reply: Reply) -> tuple[str, bool]:
    """The text behind the model's reasoning, or all of it if there is only reasoning, and whether that is so."""
    if reply.problem:
        raise Unreadable(reply.problem)
    text = reply.text
    if _CHANNEL in text:
        name, _, message = text.rpartition(_CHANNEL)[2].partition(_MESSAGE)
        text = _MESSAGE_END.split(message, 1)[0]
        if not name.strip().startswith("final"):
            return text, True
    elif text.startswith(_BARE_CHANNELS[0]) and _BARE_CHANNELS[1] in text:
        text = text.rpartition(_BARE_CHANNELS[1])[2]
    ends = [match.span() for match in _THOUGHTS_END.finditer(text)]
    thoughts, text = (text[: ends[-1][0]], text[ends[-1][1] :]) if ends else ("", text)
    if not text.strip():
        raise Unreadable(ONLY_THOUGHTS if _THOUGHTS_START.sub("", thoughts).strip() else EMPTY)
    return text, _THOUGHTS_START.match(text.lstrip()) is not None


def _from_json(text: str, field: AnswerField, is_thought: bool) -> dict[str, str]:
    """The one object of an answer, also within prose; within reasoning only where it ends it."""
    answers = [_read_json(part, field) for part in (text, *_objects(text))]
    valid = [answer for answer in answers if answer is not None]
    is_one = bool(valid) and all(answer == valid[0] for answer in valid)
    if is_one and (not is_thought or text.rstrip("` \n").endswith("}")):
        return valid[0]
    if is_thought:
        raise Unreadable(ONLY_THOUGHTS)
    raise Unreadable(REFUSAL if _REFUSAL.match(text.lstrip()) else NOT_JSON)


def _read_json(text: str, field: AnswerField) -> dict[str, str] | None:
    try:
        return ANSWERS[field].model_validate(parse_json(text)).model_dump()
    except (ValueError, ValidationError):
        return None


def _objects(text: str) -> list[str]:
    """The texts that may be objects of JSON; none if there are too many to be an answer."""
    found = list(islice((match.group() for match in _OBJECT.finditer(text)), _MOST_OBJECTS + 1))
    return found if len(found) <= _MOST_OBJECTS else []


def _unfenced(text: str) -> str:
    inner = text.strip()
    if len(inner) < 2 * len(_FENCE) or not (inner.startswith(_FENCE) and inner.endswith(_FENCE)):
        return text
    first, _, rest = inner[len(_FENCE) : -len(_FENCE)].partition("\n")
    return rest if re.fullmatch(r"\w*\s*", first) else f"{first}\n{rest}"


def _from_lines(text: str) -> dict[str, str]:
    lines = [line.partition(":") for line in text.strip().splitlines() if line.strip()]
    found = {name.strip().casefold(): value for name, _, value in lines}
    if len(found) != len(lines) or {*found} != {*EditAnswer.model_fields}:
        raise Unreadable(REFUSAL if _REFUSAL.match(text.lstrip()) else NOT_LINES)
    return found


def _clean(text: str) -> str:
    return _checked(_unquoted(text.strip()))


def _unquoted(text: str) -> str:
    is_quoted = len(text) > 1 and _QUOTES.get(text[0]) == text[-1] and text.count(text[0]) <= 2
    return text[1:-1].strip() if is_quoted else text


def _checked(text: str) -> str:
    """The text itself, if it may be a caption. The order is that of what is most telling to be counted."""
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
