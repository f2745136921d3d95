"""Retrieval among the whole set for some queries whose right captions or images are all known (ECCV Caption)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.encoding.embedded import EmbeddedItems
from hfcomp.evaluation.spec import BenchmarkData, Measured, ScoringProtocol
from hfcomp.metrics.precision_at_r import map_at_r_chance, precision_at_r, r_precision_chance

MAP_AT_R, R_PRECISION, FIRST = "mAP@R", "R-precision", "recall@1"
DIRECTIONS = ("text-to-image", "image-to-text")


@dataclass(frozen=True)
class Queries:
    """The queries of a direction and their right keys.

    Attributes:
        asked: numbers of the queries among the texts, or among the images.
        right: of each, the numbers of the keys that are right and there, at least one.
        missing: right keys, over all queries, that are not there.
        dropped: queries of which none is.
    """

    asked: NDArray[np.intp]
    right: list[NDArray[np.intp]]
    missing: int
    dropped: int


def queries(wanted: Sequence[Sequence[str]], keys: Sequence[str]) -> Queries:
    """The queries among texts or images.

    Args:
        wanted: for each text or image the names of its right keys; without any it is not a query.
        keys: names of all keys that are there.
    """
    number = {name: place for place, name in enumerate(keys)}
    there = [np.array([number[name] for name in names if name in number], dtype=np.intp) for names in wanted]
    asked = [place for place, found in enumerate(there) if len(found)]
    return Queries(
        np.array(asked, dtype=np.intp),
        [there[place] for place in asked],
        missing=sum(len(names) - len(found) for names, found in zip(wanted, there, strict=True)),
        dropped=sum(bool(len(names)) and not len(found) for names, found in zip(wanted, there, strict=True)),
    )


@dataclass(frozen=True)
class RepairedRetrieval(ScoringProtocol):
    """Columns `image`, `captions`, `caption_ids`, `right_captions` and `right_images`; a row is an image.

    `right_captions` are ids of captions that are true of the image; `right_images` are, for each of its captions, the
    items that it is true of. All images and captions are keys, those that have right keys are queries.
    """

    texts = ("captions",)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of its metrics."""
        return tuple(f"{way} {metric}" for way in DIRECTIONS for metric in (MAP_AT_R, R_PRECISION, FIRST))

    def notes(self, items: BenchmarkData) -> Iterable[str]:
        """How many right keys are not in the data."""
        rows = items.rows
        captions = [name for names in rows["caption_ids"][:] for name in names]
        wanted = [names for lists in rows["right_images"][:] for names in lists]
        for keys, found in (
            ("images", queries(wanted, rows["item"][:])),
            ("captions", queries(rows["right_captions"][:], captions)),
        ):
            if found.missing:
                yield f"{found.missing:,} right {keys} are missing; {found.dropped:,} queries have none left"

    def score(self, embedded: EmbeddedItems) -> Iterator[Measured]:
        """The metrics "mAP@R", "R-precision" and "recall@1" in both directions."""
        rows, column = embedded.items.rows, embedded.columns["captions"]
        there = column.index >= 0
        owner = np.repeat(np.arange(len(rows)), np.diff(column.offsets))[there]
        captions = _kept([name for names in rows["caption_ids"][:] for name in names], there)
        wanted = _kept([names for lists in rows["right_images"][:] for names in lists], there)
        image, text = embedded.image("image", slice(None)), embedded.text_vectors.take(column.index[there])
        names = rows["item"][:]
        to_image, to_text = queries(wanted, names), queries(rows["right_captions"][:], captions)
        asked = [f"{names[owner[place]]}/{captions[place]}" for place in to_image.asked]
        yield from _measured("text-to-image", to_image, text, image, owner[to_image.asked], asked)
        yield from _measured("image-to-text", to_text, image, text, to_text.asked, None)


def _kept(values: Sequence[Any], there: NDArray[np.bool_]) -> list[Any]:
    return [value for value, kept in zip(values, there, strict=True) if kept]


def _measured(
    direction: str,
    found: Queries,
    vectors: NDArray[np.float32],
    keys: NDArray[np.float32],
    rows: NDArray[np.integer],
    items: list[str] | None,
) -> Iterator[Measured]:
    outcome = precision_at_r(vectors[found.asked], keys, found.right)
    number = np.array([len(right) for right in found.right], dtype=np.intp)
    share, untied = r_precision_chance(number, len(keys)), np.zeros(len(number), dtype=bool)
    for metric, value, tie, chance in (
        (MAP_AT_R, outcome.map_at_r, untied, map_at_r_chance(number, len(keys))),
        (R_PRECISION, outcome.r_precision, untied, share),
        (FIRST, outcome.first.correct, outcome.first.tie, share),
    ):
        yield Measured(f"{direction} {metric}", value, tie, chance, rows=rows, items=items)
