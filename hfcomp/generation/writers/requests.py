"""What is asked of a language model and what it replies, whichever serves it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from hfcomp.schemas import Strict

# Our choice: a caption of English in tokens has a quarter of its characters; other scripts up to all of them.
_TOKENS_BESIDES = 64


AnswerField = Literal["caption", "concept", "edit"]
"""What is asked for: the name of an answer in JSON, and of its field where it has one."""


class CaptionAnswer(Strict):
    """An answer with a caption."""

    caption: str


class ConceptAnswer(Strict):
    """An answer with the name of a concept."""

    concept: str


class EditAnswer(Strict):
    """An answer with an edit of an image: what to segment, what to paint there, and the caption that is true then."""

    mask: str
    paint: str
    caption: str


ANSWERS: Mapping[AnswerField, type[Strict]] = {"caption": CaptionAnswer, "concept": ConceptAnswer, "edit": EditAnswer}


def answer_schema(field: AnswerField) -> dict[str, Any]:
    """An answer of texts as `response_format` has it."""
    names = list(ANSWERS[field].model_fields)
    return {
        "name": field,
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in names},
            "required": names,
            "additionalProperties": False,
        },
    }


@dataclass(frozen=True)
class Request:
    """One question.

    Attributes:
        prompt: the text of the user's turn.
        seed: of the sampling, where the server has one.
        temperature: of the sampling; 0 takes the likeliest token.
        max_tokens: of the answer.
        field: of an answer in JSON; a writer of plain texts does not see it.
    """

    prompt: str
    seed: int
    temperature: float
    max_tokens: int
    field: AnswerField = "caption"


@dataclass(frozen=True)
class Reply:
    """What came back: a text, or why there is none.

    Attributes:
        text: of the answer.
        problem: instead of a text.
        is_final: whether the same request would be answered the same; False for a server that failed.
    """

    text: str = ""
    problem: str | None = None
    is_final: bool = True


class Writer(Protocol):
    """A language model that answers requests."""

    def payload(self, request: Request) -> dict[str, Any]:
        """Everything that decides the answer, as JSON values, and no secret."""
        ...

    def replies(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """The place and reply of each request, as they come."""
        ...


def content_hash(payload: Mapping[str, Any]) -> str:
    """The key of a request: equal for equal content."""
    return hashlib.sha256(json.dumps(payload, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def token_budget(text: str) -> int:
    """The most tokens of an answer that repeats a text with something changed."""
    return _TOKENS_BESIDES + len(text)
