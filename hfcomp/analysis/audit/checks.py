"""What a check finds, what chance gives, and limits for CI: one number in percent, tables, and examples to look at."""

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
    """A row of the dataset to look at."""

    row: int
    text: str = ""  # the caption
    other: str = ""  # its negative, or the text that it is compared with
    note: str = ""
    images: tuple[str, ...] = ()  # columns of images to show, of this row
    other_row: int | None = None  # a second row whose image is shown


@dataclass(frozen=True)
class Check:
    name: str  # one of `CHECKS`
    value: float | None  # percent; None if it could not be checked
    of: int = 0  # number of pairs, captions, images or rows behind the percentage
    reason: str = ""  # why it was not checked, or a note on the number
    low: float = float("nan")  # image-clustered 95% interval; NaN without one
    high: float = float("nan")
    # Average by chance if pairs are decided and a tie counts half; NaN otherwise.
    chance: float = float("nan")
    chance_high: float = float("nan")  # what chance exceeds in at most 5% of cases; a limit fails only above it
    facts: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    examples: Sequence[Example] = ()

    def to_json(self) -> dict[str, Any]:
        examples = [
            {key: value for key, value in vars(one).items() if value not in ("", (), None)} for one in self.examples
        ]
        number = {"value": self.value, "low": self.low, "high": self.high, "of": self.of}
        number |= {"chance": self.chance, "chance_high": self.chance_high}
        return {"about": CHECKS[self.name], **number, "note": self.reason, **self.facts, "examples": examples}

    def with_chance(self, mean: float, high: float, facts: Mapping[str, Any]) -> Check:
        """The same check with what chance gives, and further facts."""
        return replace(self, chance=mean, chance_high=high, facts={**facts, **self.facts})


def unchecked(name: str, reason: str) -> Check:
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
        values: `[n]` bool, or from 0 to 1.
        images: `[n]`, what intervals resample.
    """
    if not len(values):
        return unchecked(name, more.get("reason") or "there is nothing to check")
    values = np.asarray(values, dtype=np.float64)
    low = high = float("nan")
    if bootstrap is not None and images is not None:
        low, high = (100 * bound for bound in bootstrap.interval(values, np.asarray(images)))
    return Check(name, 100 * float(values.mean()), len(values), low=low, high=high, **more)


DRAWS = 2000
LEVEL = 0.95
CELLS = 2**22
"""Signs that are drawn at a time: 32 MB."""
REVERSED = "reversed: the negative scores higher."


class Chance(NamedTuple):
    """Percent of pairs that a scorer decides correctly if captions and negatives do not differ."""

    mean: float
    high: float  # at least 95% of the draws are not above it


def signs_of(captions: NDArray[Any], negatives: NDArray[Any]) -> NDArray[np.float64]:
    """1 where the caption has the higher score, -1 where the negative has, 0 for a tie; NaN decides nothing."""
    return (captions > negatives).astype(np.float64) - (captions < negatives)


def decided(
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
    """A check whose number is the share of pairs that are decided correctly, a tie counting half.

    The facts `right` and `wrong` count the scorer as it is, whichever way round gives the number.

    Args:
        signs: `[n]` of `signs_of`.
        images: `[n]`, what intervals resample and chance swaps.
        bootstrap: of all images; without it there is no interval.
        chance: by default that of this scorer.
        either_way: whether the scorer's reverse counts where it decides more: always wrong gives the answer away too.
        reason: what a reader has to know of the number.
    """
    # A rule that is mostly wrong gives the answer away too: its reverse is mostly right.
    is_reversed = either_way and bool(signs.sum() < 0)
    words = " ".join(filter(None, (REVERSED if is_reversed else "", reason)))
    # Signs of -1, 0 and 1 become 0, a half and 1.
    found = share(name, (1 - signs if is_reversed else 1 + signs) / 2, images, bootstrap, reason=words, **more)
    if found.value is None:
        return found
    counts = {"right": int((signs > 0).sum()), "wrong": int((signs < 0).sum()), "undecided": int((signs == 0).sum())}
    way = {"reversed": is_reversed} if either_way else {}
    chance = chance or by_chance(signs[:, None], images, either_way=either_way)[1][0]
    return found.with_chance(chance.mean, chance.high, counts | way)


def by_chance(
    signs: NDArray[np.float64], images: Sequence[str], *, either_way: bool = False, seed: int = 0
) -> tuple[Chance, list[Chance]]:
    """What the best of several scorers, and each of them, would decide if captions and negatives did not differ.

    The caption and the negatives of an image change places, or do not, at random and for all scorers at once: the
    signs of an image's pairs flip together. So the largest of several numbers is that of scorers as alike as these.

    Args:
        signs: `[n, R]` of R scorers.
        images: `[n]`.
        either_way: whether a scorer's reverse counts where it decides more.
        seed: of the flips.
    """
    # One coin per image: its pairs are not independent, so their signs flip together. The coins are drawn in blocks,
    # because all draws of a large set would not fit into memory.
    _, sums, _ = per_image(signs, images, "signs")
    generator, rows = np.random.default_rng(seed), max(1, CELLS // len(sums))
    totals = np.concatenate(
        [
            (2.0 * generator.integers(2, size=(min(rows, DRAWS - start), len(sums)), dtype=np.int8) - 1) @ sums
            for start in range(0, DRAWS, rows)
        ]
    )
    # A tie adds 0 to the sum of signs, and so half a pair to the percentage.
    values = 50 + 50 * (np.abs(totals) if either_way else totals) / len(signs)
    return _chance(values.max(axis=1)), [_chance(column) for column in values.T]


def _chance(values: NDArray[np.float64]) -> Chance:
    # A value of the draws themselves, so at least 95% of them do not exceed it.
    return Chance(float(values.mean()), float(np.quantile(values, LEVEL, method="higher")))


# A check's number and its chance are computed in different ways, so equal ones may differ by rounding.
ROUNDING = 1e-9
_RULE = re.compile(r"\s*(\w+)\s*>\s*(\d+(?:\.\d+)?)\s*%?\s*")


@dataclass(frozen=True)
class Limit:
    """A rule of `--fail_if`."""

    name: str
    most: float  # the largest percentage that passes

    def reason(self, checks: Mapping[str, Check]) -> str | None:
        """Why it fails, `None` where it passes; a check that was not made fails."""
        check = checks[self.name]
        # A CI job must not pass because a package or the data is missing.
        if check.value is None:
            return f"{self.name} was not checked: {check.reason}"
        # A limit below what chance reaches on so few pairs would fail clean sets.
        if check.value > self.most and not self.within_chance(checks):
            chance = (
                "" if math.isnan(check.chance) else f" (by chance {check.chance:.1f}, at most {check.chance_high:.1f})"
            )
            return f"{self.name} is {check.value:.1f}, above {self.most:g}: {CHECKS[self.name]}{chance}"
        return None

    def within_chance(self, checks: Mapping[str, Check]) -> bool:
        """Whether it passes only because a clean set of this size could have such a number by chance."""
        check = checks[self.name]
        return check.value is not None and self.most < check.value <= check.chance_high + ROUNDING


def parse_limits(texts: Iterable[str]) -> list[Limit]:
    """Rules such as `blind>60`."""
    found = []
    for text in texts:
        match = _RULE.fullmatch(text)
        if match is None:
            raise ValueError(f"--fail_if: found {text!r}, expected NAME>PERCENT in quotes, as in 'blind>60'.")
        name, most = match.groups()
        if name not in CHECKS:
            raise ValueError(f"--fail_if: unknown check {name!r}.{nearest(name, CHECKS)} Known: {', '.join(CHECKS)}.")
        found.append(Limit(name, float(most)))
    return found
