"""Runs benchmarks on an encoder: rows are checked, each distinct image and text is encoded once, items are scored."""

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

if TYPE_CHECKING:  # slow to import, and whoever only lists benchmarks imports this module
    import pandas as pd
    import pyarrow as pa
    from datasets import Dataset

    from hfcomp.evaluation.encoding.embed import Indexed
    from hfcomp.evaluation.pairs.items import PairScorer

LEFT_OUT = "left_out"
PROBE_IS_WHOLE = "A probe that is fitted on a part of its images would be another one."
Prior = Callable[[Benchmark, "EmbeddedItems"], "pd.DataFrame | None"]
"""Outcomes of a model that does not see the image: `hfcomp.evaluation.blind.outcomes.prior_outcomes`."""


class DamagedProbeImage(DamagedImage):
    """A damaged image among those that a probe is fitted on, which cannot be left out."""


class NoModel:
    """An encoder that reads nothing and gives all images and texts one vector; it keeps the texts that it gets."""

    texts: Sequence[str] = ()

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        return self._index(np.array([is_missing(image) for image in images], dtype=bool))

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        self.texts = texts
        return self._index(np.zeros(len(texts), dtype=bool))

    def _index(self, missing: NDArray[np.bool_]) -> Indexed:
        from hfcomp.evaluation.encoding.embed import Indexed  # with torch, which listing benchmarks need not

        vectors = np.ones((max(1, len(missing)), 1), dtype=np.float32)
        return Indexed(vectors, np.where(missing, -1, np.arange(len(missing))), 0, 0)


@dataclass(frozen=True)
class Report:
    """What came of one benchmark and one encoder.

    Attributes:
        items: a row per item and metric: `benchmark`, `subset`, `metric`, `aspect`, `chance`, `item`, `image_id`,
            `value`, `tie`, `stratum`.
        texts: distinct texts, by their token ids.
        truncated: distinct texts that were longer than the text tower.
        merged: how many of these were cut to the tokens of another one, so that the two tie.
        tiny: distinct images that are one pixel wide or high.
        computed: distinct images and texts that were encoded now rather than read from the cache.
        pairs: of an image and a text that were scored, where that is how the model works; then `computed` counts
            distinct ones of these.
        prior: outcomes of what the model chooses without the image, where they were asked for and there are such.
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
    """Encodes what a benchmark needs, or has its pairs scored, and scores its items.

    Args:
        benchmark: what is scored, and how.
        items: of `validate`.
        encoder: the model: one that embeds images and texts, or one that scores pairs of them.
        progress: whether to show bars.
        score: whether to score. Where processes share the encoding, one of them is enough for the rest.
        prior: makes the outcomes of `Report.prior`.
        keep_scores: whether to keep the cosines and texts behind the outcomes too.

    Returns:
        Outcomes; without rows when `score` is off.

    Raises:
        Unavailable: for a model that scores pairs, where these are too many or not enough for the benchmark.
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
        # A prior needs vectors of single texts, which a model that scores pairs does not have.
        scored = embed(benchmark, items, encoder, progress=progress)
        counts = scored.counts
        blind = prior(benchmark, scored) if score and prior is not None else None
    table = score_items(benchmark, scored) if score else pd.DataFrame()
    seconds = time.perf_counter() - start
    # Outside the measured time: writing texts down is not part of scoring.
    scores = item_scores(benchmark.title, scored) if score and keep_scores else None
    return Report(table, **counts, seconds=seconds, prior=blind, scores=scores)


def score_items(benchmark: Benchmark, scored: ScoredItems) -> pd.DataFrame:
    """The outcomes of embedded items or scored pairs, with the columns of [`Report.items`]."""
    import pandas as pd

    # Published numbers name metrics. A metric that is not declared could never be compared with them.
    declared = benchmark.protocol.metric_names
    tables = []
    for one in benchmark.protocol.score(scored):
        if declared and one.metric not in declared:
            raise ValueError(
                f"{benchmark.name}: its protocol gave the metric {one.metric!r}, which its metric_names lack: "
                f"{', '.join(declared)}. Add it there."
            )
        tables.append(_table(benchmark, scored.items, one))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def validate(benchmark: Benchmark, items: BenchmarkData, *, texts_suffice: bool = False) -> BenchmarkData:
    """The items that can be scored: rows without an image or with an empty caption are left out and counted.

    So are those that a reader gave a reason in the column `left_out`.

    Args:
        texts_suffice: whether rows without an image are kept, for checks that read texts only.
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
        missing |= np.fromiter(map(is_missing, items.cells(column)), dtype=bool, count=len(rows))
    if protocol.needs_images and not texts_suffice:
        # A row has a single reason, so the counts add up to the number of rows that are left out.
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
    """Items with an image that cannot be decoded, and why; each distinct image is decoded once."""
    found: dict[int, str] = {}
    for column in benchmark.protocol.images:
        reasons = damaged_images(items.cells(column), column, progress=progress)
        # If a row has several damaged images, the reason of the first one is kept.
        found = reasons | found
    return dict(sorted(found.items()))


def without_damaged(benchmark: Benchmark, items: BenchmarkData, damaged: Mapping[int, str]) -> BenchmarkData:
    """The items without damaged ones, which are counted, with the first of them in a note."""
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
    # The usual case, in which nothing is left out, needs no table of indices.
    if len(rows) == len(items.rows):
        return items
    images = {name: pick_cells(cells, rows) for name, cells in items.images.items()}
    return replace(items, rows=items.rows.select(rows), images=images)


def embed(benchmark: Benchmark, items: BenchmarkData, encoder: Encoder, *, progress: bool = False) -> EmbeddedItems:
    protocol = benchmark.protocol
    images = {}
    for column in protocol.images:
        images[column] = encoder.index_images(items.cells(column), column=column, progress=progress)
    # One table for all columns: a text that occurs in several of them is encoded once.
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
    """Items whose rows have `item`, `subset` and `image_id`, as texts."""
    rows = items.rows
    # Names that the data lacks follow from the place of a row, so they are equal in every run on the same data.
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
    """The image of each row, that of which a part is shown; read only when they are asked for."""
    there = "image" in items.images or "image" in items.rows.column_names
    for cell in items.cells("image") if there else repeat(None, len(items.rows)):
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
