"""Reads the body of a chat completion, which is not trusted: it has the right fields or is an error."""

from __future__ import annotations

from pydantic import BaseModel, Field, ValidationError

from hfcomp.generation.writers.requests import Reply
from hfcomp.reading import parse_json

MOST_BYTES = 1_000_000
"""Of the body of a reply; our choice, a hundred times what the longest caption needs."""
REFUSED, CUT, TOO_LARGE = "model refused", "answer cut off", "answer too long"
OPENS_THOUGHTS = "<think>"
"""Stands before reasoning that came instead of an answer."""
_SHOWN = 4096  # bytes of a wrong body that are searched for the key, of which 60 are shown


class BadBody(Exception):
    """A body that is no chat completion.

    Args:
        reason: what is wrong.
        body: what came instead; it may repeat the key.
    """

    def __init__(self, reason: str, body: bytes = b"") -> None:
        super().__init__(reason, body)
        self.reason, self.body = reason, body


class BrokenOff(BadBody):
    """A body that does not come to its end, or not in time."""


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
    """What is read of a chat completion."""

    choices: list[_Choice] = Field(min_length=1)


def read_completion(body: bytes | None) -> Reply:
    """Reads the answer in a body.

    Args:
        body: Bytes of the body, or None if it was larger than `MOST_BYTES`.

    Raises:
        BadBody: for a body that is no chat completion.
    """
    if body is None:
        return Reply(problem=TOO_LARGE)
    try:
        choice = _Completion.model_validate(parse_json(body)).choices[0]
    except (ValueError, ValidationError):
        raise BadBody("expected a chat completion", body[:_SHOWN]) from None
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
