"""What a check finds: one number in percent that CI can limit, tables, and examples to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.reporting.report import Table
from hfcomp.statistics.bootstrap import ImageBootstrap

CHECKS = {
    "blind": "pairs that the best blind rule, or its reverse, decides",
    "shorter": "pairs that length decides: the shorter text, or the longer one",
    "full_stop": "pairs that a full stop at the end decides",
    "bigram": "pairs that a bigram model decides, by log probability per word",
    "bigram_sentence": "pairs that the same model decides, by log probability of the whole text",
    "language_model": "pairs in which the caption is likelier per token under a language model",
    "text_probe": "pairs that a probe of words, or its reverse, decides, trained on texts of other images",
    "embedding_probe": "pairs that a probe of text embeddings, or its reverse, decides, trained on other images",
    "image_probe": "pairs of images that a probe of embeddings, or its reverse, decides, trained on other images",
    "same_words": "pairs whose texts have the same words in another order",
    "equal_negatives": "pairs whose negative is the caption itself, character for character",
    "equal_words": "pairs whose negative has the caption's words in the same order, but for case and punctuation",
    "known_true": "pairs whose negative is another caption of the same image, those of --captions included",
    "true_negatives": "pairs in which the model prefers the negative by more than the margin",
    "duplicate_texts": "captions whose words another image's caption has too",
    "near_duplicate_texts": "captions that differ from another image's caption in one word",
    "duplicate_images": "images that are a copy of an image with another id",
    "overlap": "rows with an image that a benchmark scores",
}
"""Names of checks and what their number is a percentage of; `--fail_if` limits them."""


@dataclass(frozen=True)
class Example:
    """A row to look at.

    Attributes:
        row: of the data set.
        text: its caption.
        other: its negative, or the text that it is compared with.
        note: in words.
        images: columns of images to show, of this row.
        other_row: a second row whose image is shown.
    """

    row: int
    text: str = ""
    other: str = ""
    note: str = ""
    images: tuple[str, ...] = ()
    other_row: int | None = None


@dataclass(frozen=True)
class Check:
    """What a check found.

    Attributes:
        name: one of `CHECKS`.
        value: percent; `None` where it could not be checked.
        of: how many pairs, captions, images or rows that is of.
        reason: why it was not checked, or what a reader has to know of the number.
        low: of the image-clustered 95 % interval; NaN without one.
        high: likewise.
        chance: what chance gives on average, where pairs are decided and a tie counts half; NaN elsewhere.
        chance_high: what chance exceeds in 5 % of cases at most; a limit fails above it alone.
        facts: further numbers.
        tables: for the page.
        examples: for the page.
    """

    name: str
    value: float | None
    of: int = 0
    reason: str = ""
    low: float = float("nan")
    high: float = float("nan")
    chance: float = float("nan")
    chance_high: float = float("nan")
    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    examples: Sequence[Example] = ()

    def to_json(self) -> dict[str, Any]:
        """Its entry in `audit.json`."""
        examples = [{key: value for key, value in vars(one).items() if value} for one in self.examples]
        number = {"value": self.value, "low": self.low, "high": self.high, "of": self.of}
        number |= {"chance": self.chance, "chance_high": self.chance_high}
        return {"about": CHECKS[self.name], **number, "note": self.reason, **self.facts, "examples": examples}

    def with_chance(self, mean: float, high: float, facts: Mapping[str, Any]) -> Check:
        """The same check with what chance gives, and further facts."""
        return replace(self, chance=mean, chance_high=high, facts={**facts, **self.facts})


def unchecked(name: str, reason: str) -> Check:
    """A check that could not be made."""
    return Check(name, None, reason=reason)


def share(
    name: str,
    values: NDArray[Any],
    images: Sequence[str] | None = None,
    bootstrap: ImageBootstrap | None = None,
    **more: Any,
) -> Check:
    """A check whose number is the share of items with a flag, or the mean of values from 0 to 1.

    Args:
        name: of the check.
        values: `[n]` bool, or from 0 to 1.
        images: `[n]`, what intervals resample.
        bootstrap: of all images; without it there is no interval.
        more: further attributes.
    """
    if not len(values):
        return unchecked(name, more.get("reason") or "there is nothing to check")
    values = np.asarray(values, dtype=np.float64)
    low = high = float("nan")
    if bootstrap is not None and images is not None:
        low, high = (100 * bound for bound in bootstrap.interval(values, np.asarray(images)))
    return Check(name, 100 * float(values.mean()), len(values), low=low, high=high, **more)
