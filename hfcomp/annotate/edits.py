"""Edits of the automatic mode: what is proposed, and the edited image that passed every test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hfcomp.annotate.captions import (
    editable_keywords,
    inpaint_prompt,
    is_same_caption,
    mask_prompt,
    names,
    replacements,
)
from hfcomp.annotate.models import Inpainter, Segmenter
from hfcomp.annotate.options import DraftOptions
from hfcomp.data.annotations.entries import Item
from hfcomp.data.annotations.masks import Mask, check_mask, compose, enlarge, is_changed, threshold_mask
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.factory.images.options import ImageOptions
from hfcomp.factory.images.stage import BLANK, SAFETY_CHECKER, is_blank
from hfcomp.factory.writers.llm_client import LlmClient, Question, build_llm_client, writer_facts
from hfcomp.factory.writers.prompts import EDITS_FILE, edit_prompt
from hfcomp.factory.writers.requests import EditAnswer, Refused
from hfcomp.negatives.keywords.matching import EXTENDED, KeywordMatch, replace_keyword
from hfcomp.negatives.negative import caption_rng

NO_MORE = "no further replacement"
OLD_CAPTION, NOT_OFFERED = "an original caption", "not one of the replacements that were offered"
WRONG_PAINT, WRONG_MASK = "inpainting prompt without the new word", "mask prompt with the new word"


@dataclass(frozen=True)
class Proposal:
    """An edit that may be tried.

    Attributes:
        original: the caption of the item that is changed.
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
    """Replaces a keyword of a caption, both drawn with the replacement by the seed and the item's id."""

    counts: ClassVar[Mapping[str, int]] = {}

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def propose(self, items: Sequence[Item], attempt: int) -> list[Proposal | Refused]:
        return [self._propose(item, attempt) for item in items]

    def facts(self) -> Mapping[str, Any]:
        return {"writer": "rules"}

    def _propose(self, item: Item, attempt: int) -> Proposal | Refused:
        choices = _choices(item)
        if attempt >= len(choices):
            return Refused(NO_MORE)
        # The order is the same at each attempt, so attempts are different edits.
        caption_rng(self._seed, item.id, "proposal").shuffle(choices)
        caption, match, word = choices[attempt]
        return Proposal(
            original=caption,
            mask_prompt=mask_prompt(caption, match),
            inpaint_prompt=inpaint_prompt(caption, match, word),
            caption=replace_keyword(caption, match, word, EXTENDED),
        )


class LanguageModelProposer:
    """Asks a language model to choose among the replacements, and for prompts and a caption."""

    def __init__(self, model: Mapping[str, Any], *, seed: int, device: str | None = None) -> None:
        self._model, self._seed, self._device = model, seed, device

    @property
    def counts(self) -> Mapping[str, int]:
        return self._client.counts if "_client" in vars(self) else {}

    def propose(self, items: Sequence[Item], attempt: int) -> list[Proposal | Refused]:
        questions = [
            Question(
                edit_prompt(item.captions, item.concept, _offered_words(item)),
                "\n".join(item.captions),
                ("edit", item.concept),
                attempt,
            )
            for item in items
        ]
        return self._client.edits(questions, self._seed, lambda place, answer: read_proposal(items[place], answer))

    def facts(self) -> Mapping[str, Any]:
        return writer_facts(self._model, EDITS_FILE)

    @cached_property
    def _client(self) -> LlmClient:
        return build_llm_client(**self._model, device=self._device)


def read_proposal(item: Item, answer: EditAnswer) -> Proposal:
    """The edit in an answer, once it is one of those that were offered.

    Its caption must be one of the item's with one keyword replaced. Case and the final full stop may differ; the
    item's are kept. The prompts must fit it.

    Raises:
        Refused: with the reason.
    """
    edits = (
        (caption, word, replace_keyword(caption, match, word, EXTENDED)) for caption, match, word in _choices(item)
    )
    # The answer only chooses among our own edits: their caption is kept, whatever else the model wrote.
    found = next((edit for edit in edits if is_same_caption(edit[2], answer.caption)), None)
    if found is None:
        is_old = any(is_same_caption(caption, answer.caption) for caption in item.captions)
        raise Refused(OLD_CAPTION if is_old else NOT_OFFERED)
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


def _offered_words(item: Item) -> dict[str, tuple[str, ...]]:
    return {match.keyword: replacements(item.concept, match.keyword) for _, match, _ in _choices(item)}


BAD_MASK, SMALL_MASK, LARGE_MASK = "mask of nothing or of everything", "mask too small", "mask too large"
UNCHANGED = "mask painted as it was"
ORIGINAL_MISREAD = "original image does not prefer the original caption"
EDIT_MISREAD = "no edited image prefers the new caption"


# Maps n images to `[n]`, differences of two cosines.
Preference = Callable[[Sequence[Image.Image]], NDArray[np.float32]]


class SetAside(Exception):
    """Why no draft is made of an item."""


@dataclass(frozen=True)
class Draft:
    """An edited image that passed every test.

    Attributes:
        mask: `[H, W]`, enlarged.
        margins: cosines of the dual encoder: `original_margin` and `edited_margin`; empty without one.
    """

    image: Image.Image
    mask: Mask
    seed: int
    margins: dict[str, float]


class DraftMaker:
    """Segments, paints, composes and tests."""

    def __init__(
        self, options: DraftOptions, segmenter: Segmenter, inpainter: Inpainter, embedder: Embedder | None
    ) -> None:
        self._options, self._segmenter, self._inpainter, self._embedder = options, segmenter, inpainter, embedder

    def make(self, original: Image.Image, proposal: Proposal, seeds: Sequence[int]) -> Draft:
        """The best of the candidates.

        Raises:
            SetAside: where no candidate passed the tests, with the most frequent reason.
        """
        prefer, margins = self._preference(proposal), {}
        if prefer is not None:  # before anything is painted: it is the cheapest test
            margins["original_margin"] = -float(prefer([original])[0])
            if not margins["original_margin"] > self._options.original_margin:
                raise SetAside(ORIGINAL_MISREAD)
        mask = self._mask(original, proposal.mask_prompt)
        candidates = self._candidates(original, mask, proposal.inpaint_prompt, seeds)
        best = 0
        # The best candidate is the image that is nearest to the new caption, relative to the original caption.
        if prefer is not None:
            preferences = prefer([image for _, image in candidates])
            best = int(np.argmax(preferences))
            margins["edited_margin"] = float(preferences[best])
            if not margins["edited_margin"] > self._options.edited_margin:
                raise SetAside(EDIT_MISREAD)
        seed, image = candidates[best]
        return Draft(image, mask, seed, margins)

    def _mask(self, original: Image.Image, prompt: str) -> Mask:
        options = self._options
        found = threshold_mask(self._segmenter.probability_map(original, prompt), options.threshold)
        mask = enlarge(found, options.enlarge_x, options.enlarge_y)
        try:
            check_mask(mask, original)
        except ValueError as error:
            raise SetAside(BAD_MASK) from error
        if mask.mean() < options.min_area:
            raise SetAside(SMALL_MASK)
        if mask.mean() > options.max_area:
            raise SetAside(LARGE_MASK)
        return mask

    def _candidates(
        self, original: Image.Image, mask: Mask, prompt: str, seeds: Sequence[int]
    ) -> list[tuple[int, Image.Image]]:
        """Seeds and composed images that the pipeline has painted again."""
        found, reasons = [], Counter[str]()
        for seed, painted in zip(seeds, self._inpainter.paint(original, mask, prompt, seeds), strict=True):
            image = compose(original, painted.image, mask)
            if painted.is_blanked:
                reasons[SAFETY_CHECKER] += 1
            elif is_blank(painted.image, below=ImageOptions.blank_below):
                reasons[BLANK] += 1
            elif not is_changed(original, image, mask, least=self._options.min_change):
                reasons[UNCHANGED] += 1
            else:
                found.append((seed, image))
        if not found:
            raise SetAside(reasons.most_common(1)[0][0])
        return found

    def _preference(self, proposal: Proposal) -> Preference | None:
        """How much nearer images are to the new caption than to the original one; None without a dual encoder."""
        embedder = self._embedder
        if embedder is None:
            return None
        # Cosines are linear in the text: one product gives the difference of both.
        before, after = embedder.texts([proposal.original, proposal.caption]).vectors
        return lambda images: embedder.images(images) @ (after - before)
