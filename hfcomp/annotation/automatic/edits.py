"""From a proposal to an edited image that passed every test, or the reason why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hfcomp.annotation.automatic.options import DraftOptions
from hfcomp.annotation.automatic.proposals import Proposal
from hfcomp.annotation.inpainter import Inpainter
from hfcomp.annotation.segmenter import Segmenter
from hfcomp.data.annotations.masks import Mask, above, check_mask, compose, enlarge, is_changed
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.generation.images.options import ImageOptions
from hfcomp.generation.images.stage import BLANK, SAFETY_CHECKER, is_blank

BAD_MASK, SMALL_MASK, LARGE_MASK = "mask of nothing or of everything", "mask too small", "mask too large"
UNCHANGED = "mask painted as it was"
ORIGINAL_MISREAD = "original image does not prefer the original caption"
EDIT_MISREAD = "no edited image prefers the new caption"


Preference = Callable[[Sequence[Image.Image]], NDArray[np.float32]]
"""From n images to `[n]`, differences of two cosines."""


class SetAside(Exception):
    """Why no draft is made of an item."""


@dataclass(frozen=True)
class Draft:
    """An edited image that passed every test.

    Attributes:
        image: the edited image.
        mask: `[H, W]`, enlarged.
        seed: of the candidate.
        margins: cosines of the dual encoder: `original_margin` and `edited_margin`; empty without one.
    """

    image: Image.Image
    mask: Mask
    seed: int
    margins: dict[str, float]


class DraftMaker:
    """Segments, paints, composes and tests.

    Args:
        options: settings.
        segmenter: finds what is edited.
        inpainter: paints.
        embedder: a dual encoder that judges pairs; None for no such test, and the first candidate that was painted.
    """

    def __init__(
        self, options: DraftOptions, segmenter: Segmenter, inpainter: Inpainter, embedder: Embedder | None
    ) -> None:
        self._options, self._segmenter, self._inpainter, self._embedder = options, segmenter, inpainter, embedder

    def make(self, original: Image.Image, proposal: Proposal, seeds: Sequence[int]) -> Draft:
        """The best of the candidates.

        Args:
            original: RGB.
            proposal: what to edit.
            seeds: one for each candidate.

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
        found = above(self._segmenter.heat(original, prompt), options.threshold)
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
        """Seeds and composed images that the pipeline has painted anew."""
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
        before, after = embedder.texts([proposal.original, proposal.caption]).vectors
        return lambda images: embedder.images(images) @ (after - before)
