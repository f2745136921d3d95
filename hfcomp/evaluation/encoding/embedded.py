"""A benchmark's rows with the embeddings of their images and texts, from which protocols compute scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.spec import ROWS_AT_A_TIME, BenchmarkData
from hfcomp.metrics.choice import pair_scores

if TYPE_CHECKING:  # slow to import, and listing benchmarks imports this module
    from hfcomp.evaluation.encoding.embed import Indexed

ROWS = 4096
"""Number of pairs whose vectors are gathered at a time."""
Numbers = NDArray[np.float64]


def indexed_cosines(
    first: NDArray[np.float32], rows: NDArray[np.integer], second: NDArray[np.float32], others: NDArray[np.integer]
) -> Numbers:
    """Computes `[n]` cosines of pairs of L2-normalized vectors, given by number; NaN if a number is -1."""
    cosines = np.full(len(rows), np.nan)
    present = np.flatnonzero((rows >= 0) & (others >= 0))
    # Gathering the vectors of all pairs at once would take many times the memory of the distinct vectors.
    for start in range(0, len(present), ROWS):
        part = present[start : start + ROWS]
        cosines[part] = pair_scores(first[rows[part]], second[others[part]])
    return cosines


class Encoder(Protocol):
    """The interface that benchmarks need from a model: [`hfcomp.Embedder`], a blind encoder, or your own."""

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """Embeds distinct images, each an `Image` cell; `None` gets the index -1."""

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        """Embeds distinct texts."""


@dataclass(frozen=True)
class TextColumn:
    """A text column, stored as numbers of distinct texts.

    Attributes:
        index: `[n]`, or `[sum of the lengths]` for a column of lists; -1 for an empty text.
        offsets: `[n + 1]`, start of each row's list; `None` for a column of single texts.
    """

    index: NDArray[np.int64]
    offsets: NDArray[np.int64] | None = None

    def ragged(self, rows: slice | NDArray[np.integer]) -> NDArray[np.int64]:
        """Returns the lists of some rows as `[b, K]` numbers of texts, padded with -1."""
        places = self.places(rows)
        return np.where(places >= 0, self.index[places], -1)

    def places(self, rows: slice | NDArray[np.integer]) -> NDArray[np.int64]:
        """Returns the positions in `index` of some rows' lists, `[b, K]`, with -1 for padding and empty texts."""
        begin = self.offsets[:-1][rows]
        length = self.offsets[1:][rows] - begin
        slots = np.arange(max(1, int(length.max(initial=0))))
        # Ragged lists become a rectangle; -1 fills the rows shorter than the longest one.
        places = np.where(slots < length[:, None], begin[:, None] + slots, -1)
        return np.where((places >= 0) & (self.index[places] >= 0), places, -1) if len(self.index) else places

    def first(self, rows: slice | NDArray[np.integer]) -> NDArray[np.int64]:
        """Returns the position in `index` of each row's text, `[b]`; for lists, of the first non-empty text."""
        if self.offsets is None:
            return np.arange(len(self.index))[rows]
        # Empty texts may come first, so the first non-empty one is used.
        lists = self.places(rows)
        return lists[np.arange(len(lists)), (lists >= 0).argmax(axis=1)]

    @property
    def rows(self) -> NDArray[np.int64]:
        if self.offsets is None:
            return np.arange(len(self.index))
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class TextTable:
    """The distinct texts of several columns, with one number each."""

    def __init__(self) -> None:
        self.distinct: list[str] = []
        self._number: dict[str, int] = {}

    def add(self, column: Sequence[Any]) -> TextColumn:
        index: list[int] = []
        offsets = [0]
        lists = False
        for value in column:
            if isinstance(value, str):
                index.append(self._number_of(value))
            else:
                lists = True
                # An empty text in a list is a placeholder that no model reads.
                index.extend(self._number_of(text) if text else -1 for text in value)
                offsets.append(len(index))
        return TextColumn(np.array(index, dtype=np.int64), np.array(offsets, dtype=np.int64) if lists else None)

    def _number_of(self, text: str) -> int:
        if text not in self._number:
            self._number[text] = len(self.distinct)
            self.distinct.append(text)
        return self._number[text]


@dataclass(frozen=True)
class ScoredItems(ABC):
    """A benchmark's rows with scores of their images and texts, read in parts so memory stays bounded."""

    items: BenchmarkData
    columns: dict[str, TextColumn]

    def __len__(self) -> int:
        return len(self.items.rows)

    def parts(self) -> Iterator[slice]:
        for start in range(0, len(self), ROWS_AT_A_TIME):
            yield slice(start, min(start + ROWS_AT_A_TIME, len(self)))

    @abstractmethod
    def seen(self, image: str) -> NDArray[np.bool_]:
        """Returns which rows have an image in a column, `[n]`."""

    @abstractmethod
    def scores(self, image: str, text: str, rows: slice | NDArray[np.integer]) -> NDArray[np.floating]:
        """Returns the score of each row's image with its text, `[b]`; for lists, with the first non-empty text."""

    @abstractmethod
    def list_scores(
        self, image: str, texts: str, rows: slice | NDArray[np.integer]
    ) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
        """Returns the scores of each row's image with a list of texts, `[b, K]`, and which texts exist, `[b, K]`."""

    @abstractmethod
    def entry_scores(self) -> Iterator[tuple[tuple[str, str], NDArray[np.floating]]]:
        """Yields each pair of an image and a text column with one score per text entry; NaN if there is none."""


@dataclass(frozen=True)
class EmbeddedItems(ScoredItems):
    """Rows with the embeddings of all images and texts; a score is the cosine of a pair.

    Attributes:
        images: Embeddings of images by column.
        text_vectors: Embeddings of all distinct texts.
        prompts: `[m, D]`, vectors of the protocol's own texts.
        train: Embeddings of the images that a probe is fitted on.
    """

    images: dict[str, Indexed]
    text_vectors: Indexed
    prompts: NDArray[np.float32] = field(repr=False)
    train: Indexed | None = None

    @property
    def counts(self) -> dict[str, int]:
        images = [*self.images.values(), *([] if self.train is None else [self.train])]
        return {
            "images": sum(len(column.vectors) for column in images),
            "texts": len(self.text_vectors.vectors),
            "truncated": self.text_vectors.flagged,
            "merged": self.text_vectors.merged,
            "tiny": sum(column.flagged for column in images),
            "computed": self.text_vectors.computed + sum(column.computed for column in images),
        }

    def entries(self, chosen: slice) -> EmbeddedItems:
        """Returns the same items with a slice of their vectors, if these concatenate the vectors of several models."""

        def cut(indexed: Indexed) -> Indexed:
            # Contiguous, like the vectors of a single model.
            return replace(indexed, vectors=np.ascontiguousarray(indexed.vectors[:, chosen]))

        images = {column: cut(indexed) for column, indexed in self.images.items()}
        train, prompts = None if self.train is None else cut(self.train), self.prompts[:, chosen]
        return replace(self, images=images, text_vectors=cut(self.text_vectors), prompts=prompts, train=train)

    def image(self, column: str, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """Returns `[b, D]` L2-normalized vectors of images; zeros if an optional image is missing."""
        indexed = self.images[column]
        index = indexed.index[rows]
        vectors = np.zeros((len(index), indexed.vectors.shape[1]), dtype=indexed.vectors.dtype)
        vectors[index >= 0] = indexed.vectors[index[index >= 0]]
        return vectors

    def text(self, column: str, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """Returns `[b, D]` vectors of a text column; for lists, those of the first non-empty text."""
        texts = self.columns[column]
        return self.text_vectors.take(texts.index[texts.first(rows)])

    def texts(self, column: str, rows: slice | NDArray[np.integer]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Returns vectors `[b, K, D]` of a column of lists, and a mask `[b, K]` of existing texts."""
        index = self.columns[column].ragged(rows)
        mask = index >= 0
        return self.text_vectors.take(np.where(mask, index, 0)), mask

    def seen(self, image: str) -> NDArray[np.bool_]:
        return self.images[image].index >= 0

    def scores(self, image: str, text: str, rows: slice | NDArray[np.integer]) -> NDArray[np.floating]:
        """Returns cosines in fp32, `[b]`."""
        return pair_scores(self.image(image, rows), self.text(text, rows))

    def list_scores(
        self, image: str, texts: str, rows: slice | NDArray[np.integer]
    ) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
        """Returns cosines in fp32, `[b, K]`, and which of the texts exist."""
        vectors, mask = self.texts(texts, rows)
        return pair_scores(self.image(image, rows), vectors), mask

    def entry_scores(self) -> Iterator[tuple[tuple[str, str], NDArray[np.floating]]]:
        vectors = self.text_vectors.vectors
        for name, column in self.columns.items():
            numbers = np.where(column.index >= 0, self.text_vectors.index[column.index], -1)
            # An empty text and a missing image give NaN.
            for image, images in self.images.items():
                yield (image, name), indexed_cosines(images.vectors, images.index[column.rows], vectors, numbers)
