"""Results of checks (a percentage, tables, and examples to look at), their chance levels, and limits for CI."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hfcomp.reading import nearest
from hfcomp.reporting.report import Table
from hfcomp.statistics.bootstrap import ImageBootstrap
from hfcomp.statistics.clusters import per_image

CHECKS = {
    "blind": "pairs decided by the best blind rule or its reverse",
    "shorter": "pairs decided by length: the shorter text, or the longer one",
    "full_stop": "pairs decided by a full stop at the end",
    "bigram": "pairs decided by a bigram model, by log probability per word",
    "bigram_sentence": "pairs decided by the bigram model, by log probability of the whole text",
    "language_model": "pairs in which the caption is likelier per token under a language model",
    "text_probe": "pairs decided by a probe on words (or by its reverse) trained on texts of other images",
    "embedding_probe": "pairs decided by a probe on text embeddings (or by its reverse) trained on other images",
    "image_probe": "pairs of images decided by a probe on embeddings (or by its reverse) trained on other images",
    "same_words": "pairs whose texts have the same words in a different order",
    "equal_negatives": "pairs whose negative is the caption itself, character for character",
    "equal_words": "pairs whose negative has the caption's words in the same order, except for case and punctuation",
    "known_true": "pairs whose negative is another caption of the same image, including captions from --captions",
    "true_negatives": "pairs in which the model prefers the negative by more than the margin",
    "duplicate_texts": "captions with the same words as a caption of another image",
    "near_duplicate_texts": "captions that differ in one word from a caption of another image",
    "duplicate_images": "images that duplicate an image with another id",
    "overlap": "rows whose image is scored by a benchmark",
}
"""Names of checks, with the items that their percentage counts. `--fail_if` sets limits on them."""


@dataclass(frozen=True)
class Example:
    """A row of the dataset to look at."""

    row: int
    text: str = ""  # the caption
    other: str = ""  # its negative, or the text it is compared with
    note: str = ""
    images: tuple[str, ...] = ()  # image columns of this row to show
    other_row: int | None = None  # a second row whose image is shown


@dataclass(frozen=True)
class Check:
    name: str  # one of `CHECKS`
    value: float | None  # percent; None if it could not be checked
    of: int = 0  # number of pairs, captions, images or rows behind the percentage
    reason: str = ""  # reason for a missing value, or a note on the number
    low: float = float("nan")  # image-clustered 95% interval; NaN if there is none
    high: float = float("nan")
    # Mean chance level if pairs are decided and a tie counts half; NaN otherwise.
    chance: float = float("nan")
    chance_high: float = float("nan")  # exceeded by chance in at most 5% of cases; a limit fails only above it
    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    examples: Sequence[Example] = ()

    def to_json(self) -> dict[str, Any]:
        examples = [
            {key: value for key, value in vars(example).items() if value not in ("", (), None)}
            for example in self.examples
        ]
        number = {"value": self.value, "low": self.low, "high": self.high, "of": self.of}
        number |= {"chance": self.chance, "chance_high": self.chance_high}
        return {"about": CHECKS[self.name], **number, "note": self.reason, **self.facts, "examples": examples}

    def with_chance(self, mean: float, high: float, facts: Mapping[str, Any]) -> Check:
        """Returns a copy with its chance level and further facts."""
        return replace(self, chance=mean, chance_high=high, facts={**facts, **self.facts})


def skipped_check(name: str, reason: str) -> Check:
    return Check(name, None, reason=reason)


def share(
    name: str,
    values: NDArray[Any],
    images: Sequence[str] | None = None,
    bootstrap: ImageBootstrap | None = None,
    **more: Any,
) -> Check:
    """Returns a check whose number is the share of flagged items, or the mean of values from 0 to 1.

    Args:
        values: Flags `[n]`, or numbers from 0 to 1.
        images: Image ids `[n]`, the units that intervals resample.
    """
    if not len(values):
        return skipped_check(name, more.get("reason") or "there is nothing to check")
    values = np.asarray(values, dtype=np.float64)
    low = high = float("nan")
    if bootstrap is not None and images is not None:
        low, high = (100 * bound for bound in bootstrap.interval(values, np.asarray(images)))
    return Check(name, 100 * float(values.mean()), len(values), low=low, high=high, **more)


DRAWS = 2000
LEVEL = 0.95
CELLS = 2**22
"""Number of random signs per block: 32 MB."""
REVERSED = "reversed: the negative scores higher."


class Chance(NamedTuple):
    """Percent of pairs that a scorer decides correctly if captions and negatives do not differ."""

    mean: float
    high: float  # at least 95% of the draws are not above it


def decision_signs(captions: NDArray[Any], negatives: NDArray[Any]) -> NDArray[np.float64]:
    """Returns 1 if the caption scores higher, -1 if the negative does, and 0 for a tie or a NaN."""
    return (captions > negatives).astype(np.float64) - (captions < negatives)


def decision_check(
    name: str,
    signs: NDArray[np.float64],
    images: Sequence[str],
    bootstrap: ImageBootstrap | None = None,
    *,
    chance: Chance | None = None,
    either_way: bool = False,
    reason: str = "",
    **more: Any,
) -> Check:
    """Returns a check whose number is the share of pairs decided correctly; a tie counts as one half.

    The facts `right` and `wrong` always describe the scorer itself, even if the number comes from its reverse.

    Args:
        signs: Signs `[n]` from `decision_signs`.
        images: Image ids `[n]`, the units that intervals resample and chance swaps.
        bootstrap: Bootstrap over all images. Without it there is no interval.
        chance: Chance level. Defaults to that of this scorer.
        either_way: Whether to count the scorer's reverse if it decides more pairs, because a scorer that is always
            wrong gives the answer away too.
        reason: Note that a reader needs to interpret the number.
    """
    # A rule that is mostly wrong gives the answer away too, because its reverse is mostly right.
    is_reversed = either_way and bool(signs.sum() < 0)
    note = " ".join(filter(None, (REVERSED if is_reversed else "", reason)))
    # Signs of -1, 0 and 1 become 0, 1/2 and 1.
    check = share(name, (1 - signs if is_reversed else 1 + signs) / 2, images, bootstrap, reason=note, **more)
    if check.value is None:
        return check
    counts = {"right": int((signs > 0).sum()), "wrong": int((signs < 0).sum()), "undecided": int((signs == 0).sum())}
    direction = {"reversed": is_reversed} if either_way else {}
    chance = chance or chance_levels(signs[:, None], images, either_way=either_way)[1][0]
    return check.with_chance(chance.mean, chance.high, counts | direction)


def chance_levels(
    signs: NDArray[np.float64], images: Sequence[str], *, either_way: bool = False, seed: int = 0
) -> tuple[Chance, list[Chance]]:
    """Estimates what the best of several scorers, and each of them, would decide if captions and negatives were alike.

    Captions and negatives are swapped at random, image by image and for all scorers at once: the signs of an image's
    pairs flip together. So the best of the scorers is chosen among scorers that agree as much as the real ones.

    Args:
        signs: Signs `[n, R]` of R scorers.
        images: Image ids `[n]`.
        either_way: Whether to count a scorer's reverse if it decides more pairs.
        seed: Random seed of the flips.
    """
    # One coin per image: its pairs are not independent, so their signs flip together. The coins are drawn in blocks,
    # because all draws for a large dataset would not fit into memory.
    _, sums, _ = per_image(signs, images, "signs")
    generator, rows = np.random.default_rng(seed), max(1, CELLS // len(sums))
    totals = np.concatenate(
        [
            (2.0 * generator.integers(2, size=(min(rows, DRAWS - start), len(sums)), dtype=np.int8) - 1) @ sums
            for start in range(0, DRAWS, rows)
        ]
    )
    # A tie adds 0 to the sum of signs, which is half a pair in the percentage.
    values = 50 + 50 * (np.abs(totals) if either_way else totals) / len(signs)
    return _chance(values.max(axis=1)), [_chance(column) for column in values.T]


def _chance(values: NDArray[np.float64]) -> Chance:
    # The quantile is one of the drawn values, so at least 95% of the draws do not exceed it.
    return Chance(float(values.mean()), float(np.quantile(values, LEVEL, method="higher")))


# A check's number and its chance level are computed differently, so equal values may differ by rounding.
ROUNDING = 1e-9
_RULE = re.compile(r"\s*(\w+)\s*>\s*(\d+(?:\.\d+)?)\s*%?\s*")


@dataclass(frozen=True)
class Limit:
    """A rule of `--fail_if`."""

    name: str
    most: float  # the largest percentage that passes

    def reason(self, checks: Mapping[str, Check]) -> str | None:
        """Returns why the limit fails, or `None` if it passes. A skipped check fails."""
        check = checks[self.name]
        # A CI job must not pass because a package or the data is missing.
        if check.value is None:
            return f"{self.name} was not checked: {check.reason}"
        # On few pairs, a limit below the chance level would fail clean datasets.
        if check.value > self.most and not self.within_chance(checks):
            chance = (
                "" if math.isnan(check.chance) else f" (by chance {check.chance:.1f}, at most {check.chance_high:.1f})"
            )
            return f"{self.name} is {check.value:.1f}, above {self.most:g}: {CHECKS[self.name]}{chance}"
        return None

    def within_chance(self, checks: Mapping[str, Check]) -> bool:
        """Whether it passes only because a clean dataset of this size could reach the number by chance."""
        check = checks[self.name]
        return check.value is not None and self.most < check.value <= check.chance_high + ROUNDING


def parse_limits(texts: Iterable[str]) -> list[Limit]:
    """Parses rules such as `blind>60`."""
    limits = []
    for text in texts:
        match = _RULE.fullmatch(text)
        if match is None:
            raise ValueError(f"--fail_if: found {text!r}, expected NAME>PERCENT in quotes, for example 'blind>60'.")
        name, most = match.groups()
        if name not in CHECKS:
            raise ValueError(f"--fail_if: unknown check {name!r}.{nearest(name, CHECKS)} Known: {', '.join(CHECKS)}.")
        limits.append(Limit(name, float(most)))
    return limits
