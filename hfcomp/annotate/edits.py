"""Automatic edits: proposals, and the edited images that pass every check."""

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
    contains_word,
    editable_keywords,
    inpaint_prompt,
    is_same_caption,
    mask_prompt,
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

NO_MORE = "no replacements left"
OLD_CAPTION, NOT_OFFERED = "the new caption is an original caption", "the new caption is not an offered replacement"
WRONG_PAINT, WRONG_MASK = "the inpainting prompt lacks the new word", "the mask prompt contains the new word"


@dataclass(frozen=True)
class Proposal:
    """An edit to try.

    Attributes:
        original: The caption of the item that this edit changes.
        caption: The new caption, which describes the edited image.
    """

    original: str
    mask_prompt: str
    inpaint_prompt: str
    caption: str


class Proposer(Protocol):
    """Proposes edits."""

    counts: Mapping[str, int]
    """Numbers of language-model answers so far, cached and requested; empty for rules."""

    def propose(self, items: Sequence[Item], attempt: int) -> list[Proposal | Refused]:
        """Returns, for each item, a proposal or the reason for not having one.

        Attempts are numbered from 0, and each asks for a different edit.
        """
        ...

    def facts(self) -> Mapping[str, Any]:
        """Returns everything that determines the proposals, as JSON values."""
        ...


class RuleProposer:
    """Replaces a keyword of a caption. The seed and the item's id determine caption, keyword and replacement."""

    counts: ClassVar[Mapping[str, int]] = {}

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def propose(self, items: Sequence[Item], attempt: int) -> list[Proposal | Refused]:
        return [self._propose(item, attempt) for item in items]

    def facts(self) -> Mapping[str, Any]:
        return {"writer": "rules"}

    def _propose(self, item: Item, attempt: int) -> Proposal | Refused:
        edits = _possible_edits(item)
        if attempt >= len(edits):
            return Refused(NO_MORE)
        # The order is the same for every attempt, so all attempts are different edits.
        caption_rng(self._seed, item.id, "proposal").shuffle(edits)
        caption, match, word = edits[attempt]
        return Proposal(
            original=caption,
            mask_prompt=mask_prompt(caption, match),
            inpaint_prompt=inpaint_prompt(caption, match, word),
            caption=replace_keyword(caption, match, word, EXTENDED),
        )


class LanguageModelProposer:
    """Asks a language model to choose a replacement and to write the prompts and the caption."""

    def __init__(self, model: Mapping[str, Any], *, seed: int, device: str | None = None) -> None:
        self._model, self._seed, self._device = model, seed, device

    @property
    def counts(self) -> Mapping[str, int]:
        return self._client.counts if "_client" in vars(self) else {}

    def propose(self, items: Sequence[Item], attempt: int) -> list[Proposal | Refused]:
        questions = []
        for item in items:
            words = {match.keyword: replacements(item.concept, match.keyword) for _, match, _ in _possible_edits(item)}
            prompt = edit_prompt(item.captions, item.concept, words)
            questions.append(Question(prompt, "\n".join(item.captions), ("edit", item.concept), attempt))
        return self._client.answers(
            questions, self._seed, lambda index, answer: read_proposal(items[index], answer), "edit"
        )

    def facts(self) -> Mapping[str, Any]:
        return writer_facts(self._model, EDITS_FILE)

    @cached_property
    def _client(self) -> LlmClient:
        return build_llm_client(**self._model, device=self._device)


def read_proposal(item: Item, answer: EditAnswer) -> Proposal:
    """Returns the edit in an answer if it is one of the offered edits.

    The new caption must be one of the item's captions with one keyword replaced. Case and the final full stop may
    differ; those of the item's caption are kept. The prompts must match the edit.

    Raises:
        Refused: If the answer is rejected, with the reason.
    """
    edits = (
        (caption, word, replace_keyword(caption, match, word, EXTENDED))
        for caption, match, word in _possible_edits(item)
    )
    # The answer only chooses among our own edits: we keep our caption, whatever else the model wrote.
    edit = next((edit for edit in edits if is_same_caption(edit[2], answer.caption)), None)
    if edit is None:
        is_old = any(is_same_caption(caption, answer.caption) for caption in item.captions)
        raise Refused(OLD_CAPTION if is_old else NOT_OFFERED)
    original, word, caption = edit
    if not contains_word(answer.paint, item.concept, word):
        raise Refused(WRONG_PAINT)
    if contains_word(answer.mask, item.concept, word):
        raise Refused(WRONG_MASK)
    return Proposal(original, answer.mask, answer.paint, caption)


def _possible_edits(item: Item) -> list[tuple[str, KeywordMatch, str]]:
    """Returns every combination of a caption, a keyword in it, and a replacement for the keyword."""
    return [
        (caption, match, word)
        for caption in item.captions
        for match in editable_keywords(caption, item.concept)
        for word in replacements(item.concept, match.keyword)
    ]


BAD_MASK = "the mask covers nothing or everything"
SMALL_MASK, LARGE_MASK = "the mask is too small", "the mask is too large"
UNCHANGED = "inpainting did not change the masked region"
ORIGINAL_MISREAD = "for the original image, the dual encoder does not prefer the original caption"
EDIT_MISREAD = "the dual encoder prefers the new caption for none of the edited images"


# Maps n images to `[n]`: the cosine with the new caption minus the cosine with the original caption.
Preference = Callable[[Sequence[Image.Image]], NDArray[np.float32]]


class SetAside(Exception):
    """An edit failed a check; the message gives the reason."""


@dataclass(frozen=True)
class Draft:
    """An edited image that passed every check.

    Attributes:
        mask: Enlarged mask `[H, W]`.
        margins: Cosine margins of the dual encoder, `original_margin` and `edited_margin`. Empty without an encoder.
    """

    image: Image.Image
    mask: Mask
    seed: int
    margins: dict[str, float]


class DraftMaker:
    """Makes a draft: segments the region to edit, paints candidates, composes and checks them."""

    def __init__(
        self, options: DraftOptions, segmenter: Segmenter, inpainter: Inpainter, embedder: Embedder | None
    ) -> None:
        self._options, self._segmenter, self._inpainter, self._embedder = options, segmenter, inpainter, embedder

    def make(self, original: Image.Image, proposal: Proposal, seeds: Sequence[int]) -> Draft:
        """Paints candidates and returns the best one.

        Raises:
            SetAside: If no candidate passes the checks, with the most frequent reason.
        """
        prefer, margins = self._preference(proposal), {}
        if prefer is not None:  # the cheapest check comes first, before any painting
            margins["original_margin"] = -float(prefer([original])[0])
            if not margins["original_margin"] > self._options.original_margin:
                raise SetAside(ORIGINAL_MISREAD)
        mask = self._mask(original, proposal.mask_prompt)
        candidates = self._candidates(original, mask, proposal.inpaint_prompt, seeds)
        best = 0
        # The best candidate is the image closest to the new caption, relative to the original caption.
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
        segmented = threshold_mask(self._segmenter.probability_map(original, prompt), options.threshold)
        mask = enlarge(segmented, options.enlarge_x, options.enlarge_y)
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
        """Paints one image per seed and returns the usable ones with their seeds, composed with the original."""
        candidates, reasons = [], Counter[str]()
        for seed, painted in zip(seeds, self._inpainter.paint(original, mask, prompt, seeds), strict=True):
            image = compose(original, painted.image, mask)
            if painted.is_blanked:
                reasons[SAFETY_CHECKER] += 1
            elif is_blank(painted.image, below=ImageOptions.blank_below):
                reasons[BLANK] += 1
            elif not is_changed(original, image, mask, least=self._options.min_change):
                reasons[UNCHANGED] += 1
            else:
                candidates.append((seed, image))
        if not candidates:
            raise SetAside(reasons.most_common(1)[0][0])
        return candidates

    def _preference(self, proposal: Proposal) -> Preference | None:
        """Returns a function that scores how much closer images are to the new caption; None without an encoder."""
        embedder = self._embedder
        if embedder is None:
            return None
        # Cosines are linear in the text embedding, so a single product with the difference of the two text embeddings
        # gives the difference of the two cosines.
        before, after = embedder.texts([proposal.original, proposal.caption]).vectors
        return lambda images: embedder.images(images) @ (after - before)
