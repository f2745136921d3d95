"""A benchmark's rows with the embeddings of their images and texts, from which protocols take scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.spec import ROWS_AT_A_TIME, BenchmarkData
from hfcomp.metrics.choice import pair_scores

if TYPE_CHECKING:  # slow to import, and whoever only lists benchmarks imports this module
    from hfcomp.evaluation.encoding.embed import Indexed

ROWS = 4096
"""Pairs whose vectors are gathered at a time."""
Numbers = NDArray[np.float64]


def indexed_cosines(
    first: NDArray[np.float32], rows: NDArray[np.integer], second: NDArray[np.float32], others: NDArray[np.integer]
) -> Numbers:
    """`[n]` cosines of L2-normalized vectors by number; NaN where a number is -1."""
    found = np.full(len(rows), np.nan)
    there = np.flatnonzero((rows >= 0) & (others >= 0))
    # The gathered vectors of all pairs would take many times the memory of the distinct ones.
    for start in range(0, len(there), ROWS):
        part = there[start : start + ROWS]
        found[part] = pair_scores(first[rows[part]], second[others[part]])
    return found


class Encoder(Protocol):
    """What a benchmark asks of a model: [`hfcomp.Embedder`], a blind one, or one of yours."""

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """Embeddings of distinct images, each an `Image` cell; `None` gets the index -1."""

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        """Embeddings of distinct texts."""


@dataclass(frozen=True)
class TextColumn:
    """A column of texts as numbers of distinct texts.

    Attributes:
        index: `[n]` or, for a column of lists, `[sum of their lengths]`; -1 for an empty text.
        offsets: `[n + 1]`, where each row's list begins; `None` for a column of single texts.
    """

    index: NDArray[np.int64]
    offsets: NDArray[np.int64] | None = None

    def ragged(self, rows: slice | NDArray[np.integer]) -> NDArray[np.int64]:
        """`[b, K]` of lists, -1 where a row has fewer than K."""
        places = self.places(rows)
        return np.where(places >= 0, self.index[places], -1)

    def places(self, rows: slice | NDArray[np.integer]) -> NDArray[np.int64]:
        """`[b, K]` of lists, where in `index` their texts are, -1 where a row has fewer than K or an empty text."""
        begin = self.offsets[:-1][rows]
        length = self.offsets[1:][rows] - begin
        slots = np.arange(max(1, int(length.max(initial=0))))
        # Ragged lists become a rectangle: -1 fills the rows that are shorter than the longest.
        places = np.where(slots < length[:, None], begin[:, None] + slots, -1)
        return np.where((places >= 0) & (self.index[places] >= 0), places, -1) if len(self.index) else places

    def first(self, rows: slice | NDArray[np.integer]) -> NDArray[np.int64]:
        """`[b]`, where in `index` the text of each row is; of a list the first text that is not empty."""
        if self.offsets is None:
            return np.arange(len(self.index))[rows]
        # Empty texts may come first. The first one that exists counts.
        lists = self.places(rows)
        return lists[np.arange(len(lists)), (lists >= 0).argmax(axis=1)]

    @property
    def rows(self) -> NDArray[np.int64]:
        if self.offsets is None:
            return np.arange(len(self.index))
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class TextTable:
    """The distinct texts of several columns, each numbered once."""

    def __init__(self) -> None:
        self.distinct: list[str] = []
        self._number: dict[str, int] = {}

    def add(self, column: Sequence[Any]) -> TextColumn:
        index: list[int] = []
        offsets = [0]
        lists = False
        for value in column:
            if isinstance(value, str):
                index.append(self._of(value))
            else:
                lists = True
                # An empty text in a list marks a place without a text, and no model reads it.
                index.extend(self._of(text) if text else -1 for text in value)
                offsets.append(len(index))
        return TextColumn(np.array(index, dtype=np.int64), np.array(offsets, dtype=np.int64) if lists else None)

    def _of(self, text: str) -> int:
        if text not in self._number:
            self._number[text] = len(self.distinct)
            self.distinct.append(text)
        return self._number[text]


@dataclass(frozen=True)
class ScoredItems(ABC):
    """A benchmark's rows with scores of their images and texts, read part by part so that memory does not grow."""

    items: BenchmarkData
    columns: dict[str, TextColumn]

    def __len__(self) -> int:
        return len(self.items.rows)

    def parts(self) -> Iterator[slice]:
        for start in range(0, len(self), ROWS_AT_A_TIME):
            yield slice(start, min(start + ROWS_AT_A_TIME, len(self)))

    @abstractmethod
    def seen(self, image: str) -> NDArray[np.bool_]:
        """`[n]`, which rows have an image in a column."""

    @abstractmethod
    def scores(self, image: str, text: str, rows: slice | NDArray[np.integer]) -> NDArray[np.floating]:
        """`[b]`, of each row's image with its text; of a column of lists the first text that is not empty."""

    @abstractmethod
    def list_scores(
        self, image: str, texts: str, rows: slice | NDArray[np.integer]
    ) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
        """`[b, K]`, of each row's image with the texts of a list, and `[b, K]`, which of them exist."""

    @abstractmethod
    def entry_scores(self) -> Iterator[tuple[tuple[str, str], NDArray[np.floating]]]:
        """Each column of images with each of texts, and the scores by the entries of the texts; NaN for none."""


@dataclass(frozen=True)
class EmbeddedItems(ScoredItems):
    """Rows with the embeddings of all images and texts; a score is the cosine of a pair.

    Attributes:
        images: by column.
        text_vectors: of all distinct texts.
        prompts: `[m, D]`, of the protocol's own texts.
        train: of the images that a probe is fitted on.
    """

    images: dict[str, Indexed]
    text_vectors: Indexed
    prompts: NDArray[np.float32] = field(repr=False)
    train: Indexed | None = None

    @property
    def counts(self) -> dict[str, int]:
        images = [*self.images.values(), *([] if self.train is None else [self.train])]
        return {
            "images": sum(len(one.vectors) for one in images),
            "texts": len(self.text_vectors.vectors),
            "truncated": self.text_vectors.flagged,
            "merged": self.text_vectors.merged,
            "tiny": sum(one.flagged for one in images),
            "computed": self.text_vectors.computed + sum(one.computed for one in images),
        }

    def entries(self, chosen: slice) -> EmbeddedItems:
        """The same items with some entries of their vectors, where these are those of several models in a row."""

        def cut(found: Indexed) -> Indexed:
            # Contiguous, like the vectors of a single model.
            return replace(found, vectors=np.ascontiguousarray(found.vectors[:, chosen]))

        images = {column: cut(found) for column, found in self.images.items()}
        train, prompts = None if self.train is None else cut(self.train), self.prompts[:, chosen]
        return replace(self, images=images, text_vectors=cut(self.text_vectors), prompts=prompts, train=train)

    def image(self, column: str, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """`[b, D]`, L2-normalized; zeros where an optional image is missing."""
        found = self.images[column]
        index = found.index[rows]
        vectors = np.zeros((len(index), found.vectors.shape[1]), dtype=found.vectors.dtype)
        vectors[index >= 0] = found.vectors[index[index >= 0]]
        return vectors

    def text(self, column: str, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """`[b, D]` of a column of texts, of a column of lists the first text that is not empty."""
        found = self.columns[column]
        return self.text_vectors.take(found.index[found.first(rows)])

    def texts(self, column: str, rows: slice | NDArray[np.integer]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """`[b, K, D]` of a column of lists, and `[b, K]`, which of them exist."""
        index = self.columns[column].ragged(rows)
        mask = index >= 0
        return self.text_vectors.take(np.where(mask, index, 0)), mask

    def seen(self, image: str) -> NDArray[np.bool_]:
        return self.images[image].index >= 0

    def scores(self, image: str, text: str, rows: slice | NDArray[np.integer]) -> NDArray[np.floating]:
        """`[b]`, cosines in fp32."""
        return pair_scores(self.image(image, rows), self.text(text, rows))

    def list_scores(
        self, image: str, texts: str, rows: slice | NDArray[np.integer]
    ) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
        """`[b, K]`, cosines in fp32, and which of the texts exist."""
        vectors, mask = self.texts(texts, rows)
        return pair_scores(self.image(image, rows), vectors), mask

    def entry_scores(self) -> Iterator[tuple[tuple[str, str], NDArray[np.floating]]]:
        found = self.text_vectors
        for name, column in self.columns.items():
            numbers = np.where(column.index >= 0, found.index[column.index], -1)
            # An empty text and a missing image give NaN.
            for image, images in self.images.items():
                yield (image, name), indexed_cosines(images.vectors, images.index[column.rows], found.vectors, numbers)
