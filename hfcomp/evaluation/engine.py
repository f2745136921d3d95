"""Runs benchmarks on an encoder: rows are checked, each distinct image and text is encoded once, items are scored."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hfcomp.data.urls import shown
from hfcomp.evaluation.cells import Crop, Fitted, PooledImages, is_missing
from hfcomp.evaluation.spec import ASPECTS, EMPTY_CAPTION, NO_IMAGE, ROWS_AT_A_TIME, Benchmark, BenchmarkData, Measured

if TYPE_CHECKING:  # slow to import, and whoever only lists benchmarks imports this module
    import pandas as pd
    import pyarrow as pa
    from datasets import Dataset

    from hfcomp.evaluation.embed import Indexed

LEFT_OUT = "left_out"


class Encoder(Protocol):
    """What a benchmark asks of a model: [`hfcomp.Embedder`], a blind one, or one of yours."""

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        """Embeddings of distinct images, each an `Image` cell; `None` gets the index -1."""

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        """Embeddings of distinct texts."""


@dataclass(frozen=True)
class Report:
    """What came of one benchmark and one encoder.

    Attributes:
        items: a row per item and metric: `benchmark`, `subset`, `metric`, `aspect`, `chance`, `item`, `image_id`,
            `value`, `tie`, `stratum`.
        images: distinct images.
        texts: distinct texts, by their token ids.
        truncated: distinct texts that were longer than the text tower.
        merged: how many of these were cut to the tokens of another one, so that the two tie.
        tiny: distinct images that are one pixel wide or high.
        computed: distinct images and texts that were encoded now rather than read from the cache.
        seconds: that encoding and scoring took.
        scores: of `hfcomp.evaluation.item_scores`, where they are kept.
    """

    items: pd.DataFrame
    images: int
    texts: int
    truncated: int
    merged: int
    tiny: int
    computed: int
    seconds: float
    scores: pa.Table | None = None


def run_benchmark(
    benchmark: Benchmark,
    items: BenchmarkData,
    encoder: Encoder,
    *,
    progress: bool = False,
    score: bool = True,
    keep_scores: bool = False,
) -> Report:
    """Encodes what a benchmark needs and scores its items.

    Args:
        benchmark: what is scored, and how.
        items: of `validate`.
        encoder: the model.
        progress: whether to show bars.
        score: whether to score. Where processes share the encoding, one of them is enough for the rest.
        keep_scores: whether to keep the cosines and texts behind the outcomes too.

    Returns:
        Outcomes; without rows when `score` is off.
    """
    import pandas as pd

    from hfcomp.evaluation.item_scores import item_scores

    start = time.perf_counter()
    embedded = embed(benchmark, items, encoder, progress=progress)
    table = score_items(benchmark, embedded) if score else pd.DataFrame()
    seconds = time.perf_counter() - start
    scores = item_scores(benchmark.title, embedded) if score and keep_scores else None
    return Report(table, **embedded.counts, seconds=seconds, scores=scores)


def score_items(benchmark: Benchmark, embedded: EmbeddedItems) -> pd.DataFrame:
    """The outcomes of embedded items, with the columns of [`Report.items`]."""
    import pandas as pd

    tables = [_table(benchmark, embedded.items, one) for one in benchmark.protocol.score(embedded)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def validate(benchmark: Benchmark, items: BenchmarkData) -> BenchmarkData:
    """The items that can be scored: rows without an image or with an empty caption are left out and counted.

    So are those that a reader gave a reason in the column `left_out`.

    Raises:
        ValueError: for a missing column, a duplicate item, or no item left.
    """
    protocol, rows = benchmark.protocol, items.rows
    there = [*rows.column_names, *items.images]
    absent = [name for name in (*protocol.images, *protocol.texts) if name not in there]
    if absent:
        raise ValueError(
            f"{benchmark.name}: {items.origin.place} has no column {', '.join(map(repr, absent))}; it has "
            f"{', '.join(map(repr, there))}."
        )
    reason = np.full(len(rows), "", dtype=object)
    for column in protocol.texts:
        reason[_empty_texts(rows, column)] = EMPTY_CAPTION
    missing = np.zeros(len(rows), dtype=bool)
    for column in protocol.images:
        missing |= np.fromiter(map(is_missing, _cells(items, column)), dtype=bool, count=len(rows))
    if protocol.needs_images:
        reason[missing] = NO_IMAGE
    if LEFT_OUT in rows.column_names:
        given = np.array([value or "" for value in rows[LEFT_OUT][:]], dtype=object)
        reason = np.where(given != "", given, reason)
    kept = select_rows(_with_names(items), np.flatnonzero(reason == ""))
    left_out = dict(items.left_out)
    for name in reason[reason != ""]:
        left_out[name] = left_out.get(name, 0) + 1
    if not len(kept.rows):
        raise ValueError(f"{benchmark.name}: {items.origin.place} has no items to score: {left_out}.")
    texts_alone = int(((reason == "") & missing).sum())
    kept = replace(kept, left_out=left_out, unsolvable=_unsolvable(benchmark, kept.rows), texts_alone=texts_alone)
    _check_names(benchmark, kept)
    return kept


def select_rows(items: BenchmarkData, rows: NDArray[np.intp]) -> BenchmarkData:
    """Some of the rows, with their images.

    Args:
        items: the data.
        rows: their numbers, ascending.
    """
    if len(rows) == len(items.rows):
        return items
    images = {name: PooledImages(cells, rows) for name, cells in items.images.items()}
    return replace(items, rows=items.rows.select(rows), images=images)


def embed(benchmark: Benchmark, items: BenchmarkData, encoder: Encoder, *, progress: bool = False) -> EmbeddedItems:
    """The vectors of everything that a benchmark's protocol reads."""
    protocol = benchmark.protocol
    images = {}
    for column in protocol.images:
        images[column] = encoder.index_images(_cells(items, column), column=column, progress=progress)
    texts = TextTable()
    optional = [column for column in protocol.optional_texts if column in items.rows.column_names]
    columns = {column: texts.add(items.rows[column][:]) for column in (*protocol.texts, *optional)}
    prompts = texts.add(protocol.prompts(items)).index
    vectors = encoder.index_texts(texts.distinct, progress=progress)
    train = None
    if items.train is not None:
        train = encoder.index_images(_cells(items.train, "image"), column="image (train)", progress=progress)
    return EmbeddedItems(items, images, columns, vectors, vectors.take(prompts), train)


@dataclass(frozen=True)
class TextColumn:
    """A column of texts as numbers of distinct texts.

    Attributes:
        index: `[n]` or, for a column of lists, `[sum of their lengths]`; -1 for an empty text.
        offsets: `[n + 1]`, where each row's list begins; `None` for a column of single texts.
    """

    index: NDArray[np.int64]
    offsets: NDArray[np.int64] | None = None

    def ragged(self, rows: slice) -> NDArray[np.int64]:
        """`[b, K]` of lists, -1 where a row has fewer than K."""
        begin = self.offsets[:-1][rows]
        length = self.offsets[1:][rows] - begin
        slots = np.arange(max(1, int(length.max(initial=0))))
        there = slots < length[:, None]
        return np.where(there, self.index[np.where(there, begin[:, None] + slots, 0)], -1)


class TextTable:
    """The distinct texts of several columns, each numbered once."""

    def __init__(self) -> None:
        self.distinct: list[str] = []
        self._number: dict[str, int] = {}

    def add(self, column: Sequence[Any]) -> TextColumn:
        """Numbers a column of texts or of lists of texts."""
        index: list[int] = []
        offsets = [0]
        lists = False
        for value in column:
            if isinstance(value, str):
                index.append(self._of(value))
            else:
                lists = True
                index.extend(self._of(text) if text else -1 for text in value)
                offsets.append(len(index))
        return TextColumn(np.array(index, dtype=np.int64), np.array(offsets, dtype=np.int64) if lists else None)

    def _of(self, text: str) -> int:
        if text not in self._number:
            self._number[text] = len(self.distinct)
            self.distinct.append(text)
        return self._number[text]


@dataclass(frozen=True)
class EmbeddedItems:
    """The vectors of a benchmark's rows, read part by part so that memory does not grow with their number.

    Attributes:
        items: the rows.
        images: by column.
        columns: columns of texts, as numbers of `text_vectors`.
        text_vectors: of all distinct texts.
        prompts: `[m, D]`, of the protocol's own texts.
        train: of the images that a probe is fitted on.
    """

    items: BenchmarkData
    images: dict[str, Indexed]
    columns: dict[str, TextColumn]
    text_vectors: Indexed
    prompts: NDArray[np.float32] = field(repr=False)
    train: Indexed | None = None

    def __len__(self) -> int:
        return len(self.items.rows)

    @property
    def counts(self) -> dict[str, int]:
        """Of distinct images and texts, as `Report` names them."""
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
            return replace(found, vectors=np.ascontiguousarray(found.vectors[:, chosen]))

        images = {column: cut(found) for column, found in self.images.items()}
        train, prompts = None if self.train is None else cut(self.train), self.prompts[:, chosen]
        return replace(self, images=images, text_vectors=cut(self.text_vectors), prompts=prompts, train=train)

    def parts(self) -> Iterator[slice]:
        """Consecutive rows, `ROWS_AT_A_TIME` at a time."""
        for start in range(0, len(self), ROWS_AT_A_TIME):
            yield slice(start, min(start + ROWS_AT_A_TIME, len(self)))

    def image(self, column: str, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """`[b, D]`, L2-normalised; zeros where an optional image is missing."""
        found = self.images[column]
        index = found.index[rows]
        vectors = np.zeros((len(index), found.vectors.shape[1]), dtype=np.float32)
        vectors[index >= 0] = found.vectors[index[index >= 0]]
        return vectors

    def text(self, column: str, rows: slice | NDArray[np.integer]) -> NDArray[np.float32]:
        """`[b, D]` of a column of texts, of a column of lists the first text that is not empty."""
        found = self.columns[column]
        if found.offsets is None:
            return self.text_vectors.take(found.index[rows])
        lists = found.ragged(rows)
        first = (lists >= 0).argmax(axis=1)
        return self.text_vectors.take(lists[np.arange(len(lists)), first])

    def texts(self, column: str, rows: slice) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """`[b, K, D]` of a column of lists, and `[b, K]`, which of them exist."""
        index = self.columns[column].ragged(rows)
        mask = index >= 0
        return self.text_vectors.take(np.where(mask, index, 0)), mask


def _table(benchmark: Benchmark, items: BenchmarkData, measured: Measured) -> pd.DataFrame:
    import pandas as pd

    from hfcomp.statistics.outcomes import STRATUM

    rows = slice(None) if measured.rows is None else measured.rows
    names = {
        column: np.asarray(items.rows[column][:], dtype=object)[rows] for column in ("subset", "item", "image_id")
    }
    if measured.items is not None:
        names["item"] = np.asarray(measured.items, dtype=object)
    return pd.DataFrame(
        {
            "benchmark": benchmark.title,
            "subset": names["subset"] if measured.subset is None else measured.subset,
            "metric": measured.metric,
            "aspect": measured.aspect or ASPECTS[benchmark.suite],
            "chance": np.broadcast_to(np.asarray(measured.chance, dtype=np.float64), len(measured.value)),
            "item": names["item"],
            "image_id": names["image_id"],
            "value": measured.value.astype(np.float64),
            "tie": measured.tie,
            STRATUM: None if measured.strata is None else measured.strata.astype(str),
        }
    )


def _cells(items: BenchmarkData, column: str) -> Sequence[Any]:
    return items.images[column] if column in items.images else items.rows[column]


def _empty_texts(rows: Dataset, column: str) -> NDArray[np.bool_]:
    """Rows without any nonempty text."""

    def empty(value: Any) -> bool:
        texts = [value] if isinstance(value, str) or value is None else value
        return not any(text and text.strip() for text in texts)

    return np.fromiter(map(empty, rows[column][:]), dtype=bool, count=len(rows))


def _unsolvable(benchmark: Benchmark, rows: Dataset) -> int:
    read = {*benchmark.protocol.texts, *benchmark.protocol.optional_texts}
    if not {"caption", "negative_captions"} <= read & set(rows.column_names):
        return 0
    pairs = zip(rows["caption"][:], rows["negative_captions"][:], strict=True)
    return sum(caption in negatives for caption, negatives in pairs)


def _with_names(items: BenchmarkData) -> BenchmarkData:
    """Items whose rows have `item`, `subset` and `image_id`, as texts."""
    rows = items.rows
    number = [str(row) for row in range(len(rows))]
    columns: dict[str, list[str]] = {}
    for name, missing in (("item", number), ("subset", ["all"] * len(rows))):
        columns[name] = [str(value) for value in rows[name][:]] if name in rows.column_names else missing
    if "image_id" in rows.column_names:
        given = rows["image_id"][:]
    else:
        given = _photographs(_cells(items, "image"))
    unnamed = [f"{subset}/{item}" for subset, item in zip(columns["subset"], columns["item"], strict=True)]
    columns["image_id"] = [own if name is None else str(name) for name, own in zip(given, unnamed, strict=True)]
    kept = rows.remove_columns([name for name in columns if name in rows.column_names])
    for name, values in columns.items():
        kept = kept.add_column(name, values)
    return replace(items, rows=kept)


def _photographs(cells: Sequence[Any]) -> list[str | None]:
    """A key of each cell's photograph: its file name, or its bytes where files of one name differ."""
    names, marks = [], []
    for cell in cells:
        cell = cell.cell if isinstance(cell, Crop | Fitted) else cell
        path, content = (cell.get("path"), cell.get("bytes")) if isinstance(cell, dict) else (cell, None)
        if isinstance(path, str) and shown(path) != path:  # a signature is not written into results
            path = hashlib.sha256(path.encode()).hexdigest()[:16]
        names.append(Path(path).name if isinstance(path, str) else None)
        marks.append(path if content is None else hashlib.sha256(content).hexdigest()[:16])
    of_name: dict[str | None, set[str | None]] = {}
    for name, mark in zip(names, marks, strict=True):
        of_name.setdefault(name, set()).add(mark)
    alone = {name for name, found in of_name.items() if name is not None and len(found) == 1}
    return [name if name in alone else mark for name, mark in zip(names, marks, strict=True)]


def _check_names(benchmark: Benchmark, items: BenchmarkData) -> None:
    first: dict[str, int] = {}
    for row, names in enumerate(zip(items.rows["subset"][:], items.rows["item"][:], strict=True)):
        name = "/".join(names)
        if first.setdefault(name, row) != row:
            raise ValueError(
                f"{benchmark.name}: {items.origin.place} has the item {name!r} in rows {first[name]} and {row}. "
                "Item names must be unique; remove one of them."
            )
