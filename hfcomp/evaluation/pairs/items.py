"""A benchmark's pairs that need a score, and its rows with these scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hfcomp.evaluation.cells import decoded, distinct, image_key
from hfcomp.evaluation.encoding.embed import Indexed
from hfcomp.evaluation.encoding.embedded import EmbeddedItems, ScoredItems, TextColumn, TextTable
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Unavailable, column_values

MOST_PAIRS = 10_000
"""Limit of pairs for scoring all images with all texts; about the number of pairs in SugarCrepe."""
MOST_TEXTS = 10_000
"""Limit of texts for scoring all images with all texts, because a square table of the texts is in memory."""


class Place(NamedTuple):
    """The place of an image."""

    column: str
    row: int

    def __str__(self) -> str:
        return f"column '{self.column}', row {self.row}"


@dataclass(frozen=True)
class PairList:
    """The pairs of an image and a text that need a score. A pair may occur for several rows.

    Attributes:
        benchmark: The benchmark.
        items: Its rows.
        texts: Distinct texts.
        keys: Keys of distinct images.
        first: First place of each distinct image.
        places: `[p]`, place of each pair's image.
        image: `[p]`, number of each pair's distinct image.
        text: `[p]`, number of each pair's distinct text.
    """

    benchmark: Benchmark
    items: BenchmarkData
    texts: Sequence[str]
    keys: Sequence[bytes]
    first: Sequence[Place]
    places: Sequence[Place]
    image: NDArray[np.int64]
    text: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.text)

    def cell(self, image: int) -> Any:
        return self.items.cells(self.first[image].column)[self.first[image].row]

    def load_image(self, image: int) -> Image.Image:
        """Returns the distinct image with a number, in RGB."""
        return decoded(self.cell(image), str(self.first[image]))


class PairScores(NamedTuple):
    """Scores of a [`PairList`].

    Attributes:
        values: `[p]`, finite; only their order matters.
        computed: Number of distinct pairs that were scored now; the others were stored.
        tiny: Number of images that are one pixel wide or high.
        truncated: Number of texts that were cut.
    """

    values: NDArray[np.float64]
    computed: int
    tiny: int = 0
    truncated: int = 0


class PairScorer(Protocol):
    """A scorer of pairs of an image and a text: a model that reads both together, or a file of scores.

    Attributes:
        most_pairs: Maximum number of pairs if a benchmark needs all images with all texts.
    """

    most_pairs: int

    def score_pairs(self, pairs: PairList, *, progress: bool = False) -> PairScores | Sequence[float]:
        """Scores each pair, higher if the text fits the image better; numbers alone suffice, in the pairs' order."""


@dataclass(frozen=True)
class PairedItems(ScoredItems):
    """Rows with scores of the pairs that `ScoringProtocol.pairs` lists.

    Attributes:
        values: One score per text of a text column, by image and text column; NaN without a pair.
        present: `[n]`, which rows have an image, by image column.
    """

    values: dict[tuple[str, str], NDArray[np.float64]]
    present: dict[str, NDArray[np.bool_]]

    def seen(self, image: str) -> NDArray[np.bool_]:
        return self.present[image]

    def scores(self, image: str, text: str, rows: slice | NDArray[np.integer]) -> NDArray[np.float64]:
        return self.values[image, text][self.columns[text].first(rows)]

    def list_scores(
        self, image: str, texts: str, rows: slice | NDArray[np.integer]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        places = self.columns[texts].places(rows)
        return self.values[image, texts][places], places >= 0

    def entry_scores(self) -> Iterator[tuple[tuple[str, str], NDArray[np.float64]]]:
        yield from self.values.items()


def list_pairs(benchmark: Benchmark, items: BenchmarkData, most_pairs: int) -> PairList:
    """Lists the pairs that a benchmark needs, at most `most_pairs` if it needs all images with all texts.

    Raises:
        Unavailable: If the protocol needs embeddings, or more pairs.
    """
    return _request(benchmark, items, most_pairs)[0]


def score_pairs(
    benchmark: Benchmark, items: BenchmarkData, scorer: PairScorer, *, progress: bool = False
) -> tuple[ScoredItems, dict[str, int]]:
    """Returns the rows with their scores, and the counts of [`hfcomp.evaluation.engine.Report`]."""
    pairs, with_scores = _request(benchmark, items, scorer.most_pairs)
    scores = scorer.score_pairs(pairs, progress=progress)
    if not isinstance(scores, PairScores):
        scores = PairScores(scores, len(pairs))
    values = np.asarray(scores.values, dtype=np.float64)
    if values.shape != (len(pairs),) or not np.isfinite(values).all():
        raise ValueError(
            f"{type(scorer).__name__}.score_pairs: found an array {list(values.shape)} with {np.isnan(values).sum()} "
            f"NaN and {np.isinf(values).sum()} infinite numbers, expected [{len(pairs)}] finite ones, one per pair."
        )
    counts = {"images": len(pairs.keys), "texts": len(np.unique(pairs.text)), "pairs": len(pairs)}
    counts |= {"truncated": scores.truncated, "merged": 0, "tiny": scores.tiny, "computed": scores.computed}
    return with_scores(values), counts


WithScores = Callable[[NDArray[np.float64]], ScoredItems]
"""Function that assigns the scores of a list of pairs to its rows."""


def _request(benchmark: Benchmark, items: BenchmarkData, most_pairs: int) -> tuple[PairList, WithScores]:
    if benchmark.protocol.pairs(items):
        return _row_pairs(benchmark, items)
    if not benchmark.protocol.all_pairs:
        raise Unavailable("it needs embeddings of single images and texts.", "Score it with a dual encoder.")
    return _all_pairs(benchmark, items, most_pairs)


def _row_pairs(benchmark: Benchmark, items: BenchmarkData) -> tuple[PairList, WithScores]:
    """Lists pairs within rows, grouped by image and text column."""
    columns, table = _texts(benchmark, items)
    keys, first, images = _images(benchmark, items)
    pairs = benchmark.protocol.pairs(items)
    entries = {pair: _entries(columns[pair[1]], images[pair[0]]) for pair in pairs}
    rows = {pair: columns[pair[1]].rows[own] for pair, own in entries.items()}
    # All lists below are ordered by pair of columns, and within it by the entries that have both.
    places = [Place(pair[0], int(row)) for pair, own in rows.items() for row in own]
    image = np.concatenate([images[pair[0]][own] for pair, own in rows.items()])
    text = np.concatenate([columns[pair[1]].index[own] for pair, own in entries.items()])

    def with_scores(values: NDArray[np.float64]) -> PairedItems:
        by_pair, start = {}, 0
        for pair, own in entries.items():
            by_pair[pair] = np.full(len(columns[pair[1]].index), np.nan)
            by_pair[pair][own] = values[start : start + len(own)]
            start += len(own)
        present = {column: index >= 0 for column, index in images.items()}
        return PairedItems(items, columns, by_pair, present)

    return PairList(benchmark, items, table.distinct, keys, first, places, image, text), with_scores


def _all_pairs(benchmark: Benchmark, items: BenchmarkData, most_pairs: int) -> tuple[PairList, WithScores]:
    """Lists all images with all texts, image by image."""
    columns, table = _texts(benchmark, items)
    prompts, number = table.add(benchmark.protocol.prompts(items)).index, len(table.distinct)
    count = len(items.rows) * number
    if count > most_pairs or number > MOST_TEXTS:  # before any image is read
        limit = f"{most_pairs:,}" if count > most_pairs else f"{MOST_TEXTS:,} texts"
        raise Unavailable(
            f"it needs the scores of {len(items.rows):,} images with {number:,} texts: {count:,} pairs, more than "
            f"{limit}.",
            "Score it with a dual encoder, or score a smaller part of it.",
        )
    keys, first, index = _images(benchmark, items)
    image, text = np.repeat(np.arange(len(keys)), number), np.tile(np.arange(number), len(keys))

    def with_scores(values: NDArray[np.float64]) -> EmbeddedItems:
        # Vectors whose products are the scores: a text has a one at its own position, an image has its scores.
        scores, texts = values.reshape(-1, number), np.eye(number)
        images = {column: Indexed(scores, own, 0, 0) for column, own in index.items()}
        return EmbeddedItems(items, columns, images, Indexed(texts, np.arange(number), 0, 0), texts[prompts])

    places = [first[number] for number in image]
    return PairList(benchmark, items, table.distinct, keys, first, places, image, text), with_scores


def _texts(benchmark: Benchmark, items: BenchmarkData) -> tuple[dict[str, TextColumn], TextTable]:
    table, protocol = TextTable(), benchmark.protocol
    names = [name for name in (*protocol.texts, *protocol.optional_texts) if name in items.rows.column_names]
    return {name: table.add(column_values(items.rows, name)) for name in names}, table


def _images(
    benchmark: Benchmark, items: BenchmarkData
) -> tuple[list[bytes], list[Place], dict[str, NDArray[np.int64]]]:
    """Returns the keys of distinct images, their first places, and each row's image number by column (-1 for none)."""
    columns = benchmark.protocol.images
    places = [Place(column, row) for column in columns for row in range(len(items.rows))]
    cells = (cell for column in columns for cell in items.cells(column))
    # All columns together, because `negative_image` of one row may be `image` of another.
    keys, index, first = distinct(image_key(cell, str(place)) for cell, place in zip(cells, places, strict=True))
    return keys, [places[at] for at in first], dict(zip(columns, index.reshape(len(columns), -1), strict=True))


def _entries(texts: TextColumn, images: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the entries of a text column that have a text, and an image in their row."""
    return np.flatnonzero((texts.index >= 0) & (images[texts.rows] >= 0))
