"""Runs benchmarks on an encoder: checks rows, encodes each distinct image and text once, and scores items."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.data.image_ids import photograph_ids
from hfcomp.data.images import DamagedImage
from hfcomp.evaluation.cells import DAMAGED, Altered, damaged_images, is_missing, pick_cells
from hfcomp.evaluation.encoding.embedded import EmbeddedItems, Encoder, ScoredItems, TextTable
from hfcomp.evaluation.spec import (
    ASPECTS,
    EMPTY_CAPTION,
    NO_IMAGE,
    Benchmark,
    BenchmarkData,
    Measured,
    column_values,
    with_columns,
)

if TYPE_CHECKING:  # slow to import, and listing benchmarks imports this module
    import pandas as pd
    import pyarrow as pa
    from datasets import Dataset

    from hfcomp.evaluation.encoding.embed import Indexed
    from hfcomp.evaluation.pairs.items import PairScorer

LEFT_OUT = "left_out"
PROBE_IS_WHOLE = "A probe fitted on a part of its images would be a different probe."
Prior = Callable[[Benchmark, "EmbeddedItems"], "pd.DataFrame | None"]
"""Function for the outcomes of a model without the image, see `hfcomp.evaluation.blind.outcomes.prior_outcomes`."""


class DamagedProbeImage(DamagedImage):
    """A damaged image among those that a probe is fitted on. It cannot be left out."""


class NoModel:
    """An encoder that reads nothing: all images and texts get the same vector. It keeps the texts it receives."""

    texts: Sequence[str] = ()

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        return self._index(np.array([is_missing(image) for image in images], dtype=bool))

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        self.texts = texts
        return self._index(np.zeros(len(texts), dtype=bool))

    def _index(self, missing: NDArray[np.bool_]) -> Indexed:
        from hfcomp.evaluation.encoding.embed import Indexed  # imports torch, which listing benchmarks does not need

        vectors = np.ones((max(1, len(missing)), 1), dtype=np.float32)
        return Indexed(vectors, np.where(missing, -1, np.arange(len(missing))), 0, 0)


@dataclass(frozen=True)
class Report:
    """The results of one encoder on one benchmark.

    Attributes:
        items: One row per item and metric: `benchmark`, `subset`, `metric`, `aspect`, `chance`, `item`, `image_id`,
            `value`, `tie`, `stratum`.
        images: Number of distinct images.
        texts: Number of distinct texts, by their token ids.
        truncated: Number of distinct texts that were longer than the text tower.
        merged: Number of these that were cut to the tokens of another text, so the two tie.
        tiny: Number of distinct images that are one pixel wide or high.
        computed: Number of distinct images and texts that were encoded now rather than read from the cache.
        pairs: Number of scored pairs of an image and a text, for a model that scores pairs; `computed` then counts
            distinct pairs.
        prior: Outcomes of the model's choices without the image, if requested and available.
        scores: Table of `hfcomp.evaluation.item_scores`, if kept.
    """

    items: pd.DataFrame
    images: int
    texts: int
    truncated: int
    merged: int
    tiny: int
    computed: int
    seconds: float
    pairs: int = 0
    prior: pd.DataFrame | None = None
    scores: pa.Table | None = None

    @property
    def counts(self) -> str:
        inputs = f"{self.images:,} images and {self.texts:,} texts"
        if self.pairs:
            return f"{self.pairs:,} pairs of {inputs}, {self.computed:,} scored now"
        return f"{inputs}, {self.images + self.texts - self.computed:,} of them cached"


def run_benchmark(
    benchmark: Benchmark,
    items: BenchmarkData,
    encoder: Encoder | PairScorer,
    *,
    progress: bool = False,
    score: bool = True,
    prior: Prior | None = None,
    keep_scores: bool = False,
) -> Report:
    """Encodes a benchmark's images and texts, or scores its pairs, and scores its items.

    Args:
        benchmark: Benchmark to run.
        items: Items returned by `validate`.
        encoder: Model that embeds images and texts, or that scores pairs of them.
        progress: Whether to show bars.
        score: Whether to score. If processes share the encoding, it is enough that one of them scores.
        prior: Function that makes the outcomes of `Report.prior`.
        keep_scores: Whether to also keep the cosines and texts behind the outcomes.

    Returns:
        Outcomes; without rows if `score` is off.

    Raises:
        Unavailable: If the model scores pairs, and these are too many or not enough for the benchmark.
    """
    import pandas as pd

    from hfcomp.evaluation.item_scores import item_scores
    from hfcomp.evaluation.pairs.items import score_pairs

    start = time.perf_counter()
    scored: ScoredItems
    blind = None
    if hasattr(encoder, "score_pairs"):
        scored, counts = score_pairs(benchmark, items, encoder, progress=progress)
    else:
        # A prior needs vectors of single texts, which a model that scores pairs does not compute.
        scored = embed(benchmark, items, encoder, progress=progress)
        counts = scored.counts
        blind = prior(benchmark, scored) if score and prior is not None else None
    table = score_items(benchmark, scored) if score else pd.DataFrame()
    seconds = time.perf_counter() - start
    # Not included in the measured time: collecting the texts is not part of scoring.
    scores = item_scores(benchmark.title, scored) if score and keep_scores else None
    return Report(table, **counts, seconds=seconds, prior=blind, scores=scores)


def score_items(benchmark: Benchmark, scored: ScoredItems) -> pd.DataFrame:
    """Returns the outcomes of embedded items or scored pairs, with the columns of [`Report.items`]."""
    import pandas as pd

    # Published numbers name metrics. A metric that is not declared could never be compared with them.
    declared = benchmark.protocol.metric_names
    tables = []
    for measured in benchmark.protocol.score(scored):
        if declared and measured.metric not in declared:
            raise ValueError(
                f"{benchmark.name}: its protocol returned the metric {measured.metric!r}, but its metric_names are "
                f"{', '.join(declared)}. Add it there."
            )
        tables.append(_table(benchmark, scored.items, measured))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def validate(benchmark: Benchmark, items: BenchmarkData, *, texts_suffice: bool = False) -> BenchmarkData:
    """Returns the items that can be scored.

    Rows without an image or with an empty caption are left out and counted, and so are rows with a reason in the
    column `left_out`, which a reader may add.

    Args:
        texts_suffice: Whether to keep rows without an image, for checks that read only texts.
    """
    protocol, rows = benchmark.protocol, items.rows
    columns = [*rows.column_names, *items.images]
    absent = [name for name in (*protocol.images, *protocol.texts) if name not in columns]
    if absent:
        raise ValueError(
            f"{benchmark.name}: {items.origin.place} has no column {', '.join(map(repr, absent))}; it has "
            f"{', '.join(map(repr, columns))}."
        )
    reason = np.full(len(rows), "", dtype=object)
    for column in protocol.texts:
        reason[_empty_texts(rows, column)] = EMPTY_CAPTION
    missing = np.zeros(len(rows), dtype=bool)
    for column in protocol.images:
        missing |= np.fromiter(map(is_missing, items.cells(column)), dtype=bool, count=len(rows))
    if protocol.needs_images and not texts_suffice:
        # Each row has a single reason, so the counts add up to the number of rows left out.
        reason[missing] = NO_IMAGE
    # A reader's own reason is more precise than a missing image or text.
    if LEFT_OUT in rows.column_names:
        given = np.array([value or "" for value in column_values(rows, LEFT_OUT)], dtype=object)
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


def find_damaged(benchmark: Benchmark, items: BenchmarkData, *, progress: bool = False) -> dict[int, str]:
    """Finds items with an image that cannot be decoded, with the reason. Decodes each distinct image once."""
    damaged: dict[int, str] = {}
    for column in benchmark.protocol.images:
        reasons = damaged_images(items.cells(column), column, progress=progress)
        # If a row has several damaged images, the reason of the first one is kept.
        damaged = reasons | damaged
    return dict(sorted(damaged.items()))


def without_damaged(benchmark: Benchmark, items: BenchmarkData, damaged: Mapping[int, str]) -> BenchmarkData:
    """Removes and counts damaged items; a note names the first one."""
    if not damaged:
        return items
    first = next(iter(damaged.values()))
    if len(damaged) == len(items.rows):
        raise ValueError(f"{benchmark.name}: all {len(damaged):,} items have a damaged image. The first: {first}")
    kept = select_rows(items, np.setdiff1d(np.arange(len(items.rows)), list(damaged)))
    missing = [map(is_missing, kept.cells(column)) for column in benchmark.protocol.images]
    return replace(
        kept,
        left_out={**items.left_out, DAMAGED: len(damaged)},
        unsolvable=_unsolvable(benchmark, kept.rows),
        texts_alone=sum(map(any, zip(*missing, strict=True))) if items.texts_alone else 0,
        notes=(*items.notes, f"the first of the damaged images: {first}"),
    )


def select_rows(items: BenchmarkData, rows: NDArray[np.intp]) -> BenchmarkData:
    # Usually no row is left out, which needs no table of indices.
    if len(rows) == len(items.rows):
        return items
    images = {name: pick_cells(cells, rows) for name, cells in items.images.items()}
    return replace(items, rows=items.rows.select(rows), images=images)


def embed(benchmark: Benchmark, items: BenchmarkData, encoder: Encoder, *, progress: bool = False) -> EmbeddedItems:
    protocol = benchmark.protocol
    images = {}
    for column in protocol.images:
        images[column] = encoder.index_images(items.cells(column), column=column, progress=progress)
    # One table for all columns, so a text that occurs in several of them is encoded once.
    texts = TextTable()
    optional = [column for column in protocol.optional_texts if column in items.rows.column_names]
    columns = {column: texts.add(column_values(items.rows, column)) for column in (*protocol.texts, *optional)}
    prompts = texts.add(protocol.prompts(items)).index
    vectors = encoder.index_texts(texts.distinct, progress=progress)
    train = None
    if items.train is not None:
        try:
            train = encoder.index_images(items.train.cells("image"), column="image (train)", progress=progress)
        except DamagedImage as error:
            raise DamagedProbeImage(f"{error} {PROBE_IS_WHOLE}") from error
    return EmbeddedItems(items, columns, images, vectors, vectors.take(prompts), train)


def _table(benchmark: Benchmark, items: BenchmarkData, measured: Measured) -> pd.DataFrame:
    import pandas as pd

    from hfcomp.statistics.outcomes import STRATUM

    # A metric may cover only some rows, or have several entries for one row.
    rows = slice(None) if measured.rows is None else measured.rows
    names = {column: values[rows] for column, values in items.names.items()}
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


def _empty_texts(rows: Dataset, column: str) -> NDArray[np.bool_]:
    def empty(value: Any) -> bool:
        texts = [value] if isinstance(value, str) or value is None else value
        # A list is empty if all of its texts are.
        return not any(text and text.strip() for text in texts)

    return np.fromiter(map(empty, column_values(rows, column)), dtype=bool, count=len(rows))


def _unsolvable(benchmark: Benchmark, rows: Dataset) -> int:
    read = {*benchmark.protocol.texts, *benchmark.protocol.optional_texts}
    if not {"caption", "negative_captions"} <= read & set(rows.column_names):
        return 0
    pairs = zip(column_values(rows, "caption"), column_values(rows, "negative_captions"), strict=True)
    # A tie is wrong, so no model can solve an item whose caption is one of its negatives.
    return sum(caption in negatives for caption, negatives in pairs)


def _with_names(items: BenchmarkData) -> BenchmarkData:
    """Adds `item`, `subset` and `image_id` to the rows where missing, and converts them to texts."""
    rows = items.rows
    # Missing names are derived from the position of a row, so they are equal in every run on the same data.
    number = [str(row) for row in range(len(rows))]
    columns: dict[str, list[str]] = {}
    for name, missing in (("item", number), ("subset", ["all"] * len(rows))):
        columns[name] = list(map(str, column_values(rows, name))) if name in rows.column_names else missing
    given = column_values(rows, "image_id") if "image_id" in rows.column_names else None
    photographs = photograph_ids(given, _whole_images(items))
    unnamed = [f"{subset}/{item}" for subset, item in zip(columns["subset"], columns["item"], strict=True)]
    columns["image_id"] = [name or own for name, own in zip(photographs, unnamed, strict=True)]
    # An unchanged column stays on disk, while an added one is copied into memory.
    changed = [name for name in columns if not _has_texts(rows, name) or (name == "image_id" and photographs != given)]
    return replace(items, rows=with_columns(rows, {name: columns[name] for name in changed}))


def _has_texts(rows: Dataset, name: str) -> bool:
    return (
        name in rows.column_names
        and getattr(rows.info.features[name], "dtype", None) == "string"
        and rows.data.column(name).null_count == 0
    )


def _whole_images(items: BenchmarkData) -> Iterator[Any]:
    """Yields each row's image, for a cropped image the whole one. Images are read only on demand."""
    has_images = "image" in items.images or "image" in items.rows.column_names
    for cell in items.cells("image") if has_images else repeat(None, len(items.rows)):
        yield cell.cell if isinstance(cell, Altered) else cell


def _check_names(benchmark: Benchmark, items: BenchmarkData) -> None:
    # Models are compared item by item, so each name must occur only once.
    first: dict[str, int] = {}
    for row, names in enumerate(zip(items.names["subset"], items.names["item"], strict=True)):
        name = "/".join(names)
        if first.setdefault(name, row) != row:
            raise ValueError(
                f"{benchmark.name}: {items.origin.place} has the item {name!r} in rows {first[name]} and {row}. "
                "Item names must be unique; remove one of them."
            )
