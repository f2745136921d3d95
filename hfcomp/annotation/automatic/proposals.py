"""What is edited in an image without an annotator: by rules, or by a language model that chooses among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

from hfcomp.annotation.captions import (
    editable_keywords,
    inpaint_prompt,
    is_same_caption,
    mask_prompt,
    names,
    replacements,
)
from hfcomp.data.annotations.entries import Item
from hfcomp.generation.writers.asker import Asker, Question, make_asker, writer_facts
from hfcomp.generation.writers.prompts import EDITS_FILE, edit_prompt
from hfcomp.generation.writers.requests import EditAnswer, Refused
from hfcomp.negatives.keywords.matching import EXTENDED, KeywordMatch, replace_keyword
from hfcomp.negatives.negative import caption_rng

NO_MORE = "no further replacement"
UNCHANGED, NOT_OFFERED = "an original caption", "not one of the replacements that were offered"
WRONG_PAINT, WRONG_MASK = "inpainting prompt without the new word", "mask prompt with the new word"


@dataclass(frozen=True)
class Proposal:
    """An edit that may be tried.

    Attributes:
        original: the caption of the item that is changed.
        mask_prompt: what to segment.
        inpaint_prompt: what to paint there.
        caption: true of the edited image.
    """

    original: str
    mask_prompt: str
    inpaint_prompt: str
    caption: str


class Proposer(Protocol):
    """Proposes edits."""

    counts: Mapping[str, int]
    """Number of answers of a language model so far."""

    def propose(self, items: Sequence[Item], attempt: int) -> list[Proposal | Refused]:
        """A proposal for each item, or why there is none; another one with each attempt, from 0."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What decides the proposals, as JSON values."""
        ...


class RuleProposer:
    """Replaces a keyword of a caption, both drawn with the replacement by the seed and the item's id.

    Args:
        seed: of the draws.
    """

    counts: ClassVar[Mapping[str, int]] = {}

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def propose(self, items: Sequence[Item], attempt: int) -> list[Proposal | Refused]:
        """See `Proposer`."""
        return [self._propose(item, attempt) for item in items]

    def facts(self) -> Mapping[str, Any]:
        """See `Proposer`."""
        return {"writer": "rules"}

    def _propose(self, item: Item, attempt: int) -> Proposal | Refused:
        choices = _choices(item)
        if attempt >= len(choices):
            return Refused(NO_MORE)
        caption_rng(self._seed, item.id, "proposal").shuffle(choices)
        caption, match, word = choices[attempt]
        return Proposal(
            original=caption,
            mask_prompt=mask_prompt(caption, match),
            inpaint_prompt=inpaint_prompt(caption, match, word),
            caption=replace_keyword(caption, match, word, EXTENDED),
        )


class LanguageModelProposer:
    """Asks a language model to choose among the replacements, and for prompts and a caption.

    Args:
        model: settings of `hfcomp.generation.writers.asker.make_asker`.
        seed: of the sampling.
        device: of a model in this process.
    """

    def __init__(self, model: Mapping[str, Any], *, seed: int, device: str | None = None) -> None:
        self._model, self._seed, self._device = model, seed, device

    @property
    def counts(self) -> Mapping[str, int]:
        """See `Proposer`."""
        return self._asker.counts if "_asker" in vars(self) else {}

    def propose(self, items: Sequence[Item], attempt: int) -> list[Proposal | Refused]:
        """See `Proposer`."""
        questions = [
            Question(
                edit_prompt(item.captions, item.concept, _offered(item)),
                "\n".join(item.captions),
                ("edit", item.concept),
                attempt,
            )
            for item in items
        ]
        return self._asker.edits(questions, self._seed, lambda place, answer: read_proposal(items[place], answer))

    def facts(self) -> Mapping[str, Any]:
        """See `Proposer`."""
        return writer_facts(self._model, EDITS_FILE)

    @cached_property
    def _asker(self) -> Asker:
        return make_asker(**self._model, device=self._device)


def read_proposal(item: Item, answer: EditAnswer) -> Proposal:
    """The edit in an answer, once it is one of those that were offered.

    Its caption has to be one of the item's with one keyword replaced, but for case and the final full stop, in which
    the item's is followed. The prompts have to fit it.

    Raises:
        Refused: with the reason.
    """
    edits = (
        (caption, word, replace_keyword(caption, match, word, EXTENDED)) for caption, match, word in _choices(item)
    )
    found = next((edit for edit in edits if is_same_caption(edit[2], answer.caption)), None)
    if found is None:
        is_old = any(is_same_caption(caption, answer.caption) for caption in item.captions)
        raise Refused(UNCHANGED if is_old else NOT_OFFERED)
    original, word, caption = found
    if not names(answer.paint, item.concept, word):
        raise Refused(WRONG_PAINT)
    if names(answer.mask, item.concept, word):
        raise Refused(WRONG_MASK)
    return Proposal(original, answer.mask, answer.paint, caption)


def _choices(item: Item) -> list[tuple[str, KeywordMatch, str]]:
    """Each caption, keyword in it, and word that may replace the keyword."""
    return [
        (caption, match, word)
        for caption in item.captions
        for match in editable_keywords(caption, item.concept)
        for word in replacements(item.concept, match.keyword)
    ]


def _offered(item: Item) -> dict[str, tuple[str, ...]]:
    return {match.keyword: replacements(item.concept, match.keyword) for _, match, _ in _choices(item)}
