"""Selects the items for the page of an evaluation and collects their texts, scores, outcomes and thumbnails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from hfcomp.data.images import Unreadable
from hfcomp.data.urls import is_url
from hfcomp.evaluation.cells import Altered, decoded, is_missing
from hfcomp.evaluation.item_scores import CLASS
from hfcomp.metrics.units import HEADLINE_METRIC
from hfcomp.reporting.pages.items import (
    CAPTION,
    DEFAULT_PAGE,
    NEGATIVE,
    POSITIVE,
    ItemBrowser,
    ItemOutcome,
    ItemText,
    PageOptions,
    ShownItem,
)
from hfcomp.reporting.pages.page import Cell, thumbnail

if TYPE_CHECKING:
    import pyarrow as pa

    from hfcomp.evaluation.loaded import Loaded

ENTRY_COLUMNS = ["benchmark", "subset", "item"]
Entry = tuple[str, str, str]
"""Benchmark, subset and item."""
ROLES = {"caption": CAPTION, "captions": CAPTION, "negative_captions": NEGATIVE, "positive_captions": POSITIVE}
MOST_TEXTS = 8
"""Maximum number of texts shown per column and item: those with the highest scores."""
THREADS = 8
BY_URL = "referenced by a URL, which is not downloaded again for this page"


class ItemImages:
    """The images of loaded benchmarks, found by the names of their items."""

    def __init__(self, loaded: Iterable[Loaded]) -> None:
        self._rows: dict[Entry, tuple[Loaded, int]] = {}
        for benchmark in loaded:
            names = zip(benchmark.data.names["subset"], benchmark.data.names["item"], strict=True)
            for row, name in enumerate(names):
                # `benchmark.title` changes if only part of a benchmark is scored, but a recipe's outcomes have the
                # plain title, so both are registered.
                for title in {benchmark.title, benchmark.benchmark.title}:
                    self._rows[title, *name] = benchmark, row
        self._index = _EntryIndex(self._rows)

    def cells(self, entry: Entry) -> dict[str, Any]:
        """Returns the images of an item by column; none for an unknown item."""
        match = self._index.find(entry)
        if match is None:
            return {}
        loaded, row = self._rows[match.entry]
        data = loaded.data
        columns = loaded.benchmark.protocol.images
        return {name: data.images[name][row] if name in data.images else data.rows[row][name] for name in columns}


class _Match(NamedTuple):
    entry: Entry  # entry of a benchmark's row
    place: int | None  # position of the text, if a row has one entry per text


class _EntryIndex:
    """Finds the row of a benchmark that an outcome belongs to.

    The outcome may have a subset of its own, or its item may be `row/number` for one of the row's texts.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = set(entries)
        self._by_item: dict[tuple[str, str], Entry | None] = {}
        for benchmark, subset, item in self._entries:
            key = benchmark, item
            # A name that occurs in several subsets is ambiguous without its subset.
            self._by_item[key] = None if key in self._by_item else (benchmark, subset, item)

    def find(self, entry: Entry) -> _Match | None:
        benchmark, subset, item = entry
        row, _, place = item.rpartition("/")
        names = [(item, None), *([(row, int(place))] if row and place.isdecimal() else [])]
        for name, number in names:
            own = benchmark, subset, name
            known = own if own in self._entries else self._by_item.get((benchmark, name))
            if known is not None:
                return _Match(known, number)
        return None


def item_browser(
    outcomes: pd.DataFrame,
    scores: pa.Table | None,
    images: ItemImages | None,
    *,
    models: Sequence[str],
    pair: tuple[str, str],
    blind: Sequence[str] = (),
    tie: str = "wrong",
    options: PageOptions = DEFAULT_PAGE,
) -> ItemBrowser | None:
    """Selects the items of a page: first those on which models differ, then a sample of each subset.

    Args:
        outcomes: Outcomes of all models; without any, the result is None.
        scores: Table from `item_scores` with the column `arm`; without it, items have no texts.
        images: Images of the benchmarks; without them, items have no thumbnails.
        models: Models in the order of columns.
        pair: The two models shown first, the reference before the other.
        blind: Models among `models` whose differences do not select items.
        tie: How a tie counts.
        options: Options of the page.
    """
    if not options.items or not len(outcomes):
        return None
    chosen, about = choose_items(outcomes, [name for name in models if name not in blind], pair, options.items)
    kept = outcomes.merge(chosen, on=ENTRY_COLUMNS)
    entries = [tuple(entry) for entry in chosen.itertuples(index=False)]
    texts = _Texts(scores, entries)
    pictures, notes = _make_thumbnails(images, entries, options) if options.thumbnails else ({}, [])
    if scores is None:
        notes.append("Texts and scores were not stored with these outcomes.")
    if options.thumbnails and images is None:
        notes.append("Images are shown only on the page of `hfcomp evaluate`. This command does not read them.")
    items = []
    for entry, (image, results) in _outcomes_of(kept).items():
        shown = pictures.get(entry) or [(name, None) for name in texts.images(entry)]
        items.append(ShownItem(*entry, image, results, shown, *texts.select(entry, [name for name, _ in shown])))
    return ItemBrowser(list(models), pair, _metrics(kept), items, about, notes, tie, options)


def choose_items(
    outcomes: pd.DataFrame, models: Sequence[str], pair: tuple[str, str], max_items: int, seed: int = 0
) -> tuple[pd.DataFrame, str]:
    """Selects at most `max_items` items, in their order, and returns them and a sentence that describes the selection.

    Items on which the pair differs come first, then those on which other models differ, then all others. Within each
    kind, all subsets contribute the same number as far as possible.
    """
    entries = outcomes[ENTRY_COLUMNS].drop_duplicates(ignore_index=True)
    total = len(entries)
    if total <= max_items:
        return entries, f"All {total:,} items."
    by_pair, by_any = (_has_different_values(outcomes, names, entries) for names in (pair, models))
    kind = np.where(by_pair, 0, np.where(by_any, 1, 2))
    drawn = pd.Series(np.random.default_rng(seed).permutation(total))
    # Items sorted by their rank within a subset come from all subsets in turn.
    place = drawn.groupby([entries["benchmark"], entries["subset"], kind]).rank()
    order = np.lexsort((drawn, place, kind))[:max_items]
    about = f"{max_items:,} of {total:,} items"
    changed = int((kind[order] < 2).sum())
    if (kind < 2).any():
        every = int((kind < 2).sum())
        about += f": {changed:,} of the {every:,} that models score differently"
        about += f", and {max_items - changed:,} others" if changed < max_items else ","
        about += " sampled at random"
    else:
        about += " sampled at random"
    about += ", evenly over subsets where possible. Numbers in the tables cover all items."
    return entries.iloc[np.sort(order)], about


def _has_different_values(outcomes: pd.DataFrame, models: Iterable[str], entries: pd.DataFrame) -> np.ndarray:
    """Returns whether these models have different values for an item in any metric, `[n]`."""
    own = outcomes[outcomes["arm"].isin(set(models))]
    if own["arm"].nunique() < 2:
        return np.zeros(len(entries), dtype=bool)
    spread = own.groupby([*ENTRY_COLUMNS, "metric"], sort=False)["value"].agg(["min", "max"])
    differing = spread[spread["min"] != spread["max"]].reset_index()[ENTRY_COLUMNS].drop_duplicates()
    marked = entries.merge(differing, on=ENTRY_COLUMNS, how="left", indicator=True)
    return (marked["_merge"] == "both").to_numpy()


def _outcomes_of(kept: pd.DataFrame) -> dict[Entry, tuple[str, dict[str, dict[str, ItemOutcome]]]]:
    by_entry: dict[Entry, tuple[str, dict[str, dict[str, ItemOutcome]]]] = {}
    columns = (*ENTRY_COLUMNS, "image_id", "metric", "arm", "value", "tie")
    for *entry, image, metric, arm, value, tie in zip(*(kept[name] for name in columns), strict=True):
        _, outcomes = by_entry.setdefault(tuple(entry), (image, {}))
        outcomes.setdefault(metric, {})[arm] = ItemOutcome(float(value), bool(tie))
    return by_entry


def _metrics(kept: pd.DataFrame) -> dict[str, list[str]]:
    """Returns the metrics of each benchmark, the strictest one first."""
    metrics = {}
    for title, own in kept.groupby("benchmark", sort=False):
        metrics[str(title)] = sorted(own["metric"].unique(), key=lambda metric: metric != HEADLINE_METRIC)
    return metrics


class _Texts:
    """The texts and scores of selected items, from the table of all scores."""

    def __init__(self, scores: pa.Table | None, entries: Sequence[Entry]) -> None:
        self._texts: dict[Entry, dict[str, list[str]]] = {}
        self._images: dict[Entry, list[str]] = {}
        self._cosines: dict[tuple[Entry, str, str], dict[str, list[float]]] = {}
        for row in [] if scores is None else _select_rows(scores, entries):
            entry = row["benchmark"], row["subset"], row["item"]
            self._texts.setdefault(entry, {})[row["texts_of"]] = row["texts"]
            image = row["image_of"].replace("_", " ")
            if image not in self._images.setdefault(entry, []):
                self._images[entry].append(image)
            if row["cosines"] is not None:
                own = self._cosines.setdefault((entry, row["texts_of"], image), {})
                own[row["arm"]] = row["cosines"]
        self._index = _EntryIndex(self._texts)

    def images(self, entry: Entry) -> list[str]:
        match = self._index.find(entry)
        return self._images.get(match.entry, ["image"]) if match is not None else ["image"]

    def select(self, entry: Entry, images: Sequence[str]) -> tuple[list[ItemText], int]:
        """Returns an item's texts with their scores for each image, and the number of texts not shown."""
        match = self._index.find(entry)
        if match is None:
            return [], 0
        texts, hidden = [], 0
        for column, own in self._texts[match.entry].items():
            role = ROLES.get(column, CLASS if column == CLASS else column.replace("_", " "))
            candidates = [
                ItemText(role, text, self._scores(match.entry, column, images, place))
                for place, text in enumerate(own)
                if text and match.place in (None, place)
            ]
            # The highest scores decide the outcome, so these texts are shown, in the order of the data.
            shown = sorted(range(len(candidates)), key=lambda place: -_highest_score(candidates[place]))[:MOST_TEXTS]
            texts += [candidates[place] for place in sorted(shown)]
            hidden += len(candidates) - len(shown)
        return texts, hidden

    def _scores(self, entry: Entry, column: str, images: Sequence[str], place: int) -> dict[str, list[float | None]]:
        by_image = [self._cosines.get((entry, column, image), {}) for image in images]
        arms = dict.fromkeys(arm for own in by_image for arm in own)
        return {arm: [_nan_to_none(own[arm][place]) if arm in own else None for own in by_image] for arm in arms}


def _select_rows(scores: pa.Table, entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table of scores that may belong to these items, in any subset."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # An outcome of a single text names its item `row/number`.
    names = {item for _, _, item in entries} | {item.rpartition("/")[0] for _, _, item in entries}
    kept = scores.filter(pc.is_in(scores["item"], value_set=pa.array(sorted(names), pa.string())))
    yield from kept.to_pylist()


def _nan_to_none(cosine: float) -> float | None:
    return None if np.isnan(cosine) else cosine


def _highest_score(text: ItemText) -> float:
    # The default is below every cosine, so texts without a score come last.
    return max((score for own in text.scores.values() for score in own if score is not None), default=-2.0)


def _make_thumbnails(
    images: ItemImages | None, entries: Sequence[Entry], options: PageOptions
) -> tuple[dict[Entry, list[tuple[str, Cell]]], list[str]]:
    """Makes the thumbnails of items, and a note on images that cannot be read."""
    if images is None:
        return {}, []
    cells = {entry: images.cells(entry) for entry in entries}
    # An image that several items share is decoded once.
    distinct = {_image_key(cell): cell for own in cells.values() for cell in own.values()}
    with ThreadPoolExecutor(THREADS) as pool:
        made = pool.map(lambda cell: _make_thumbnail(cell, options.side), distinct.values())
        thumbnails = dict(zip(distinct, made, strict=True))
    # One note instead of a hundred, because usually a whole folder is missing.
    bad = [reason for reason in thumbnails.values() if isinstance(reason, str)]
    notes = [f"{len(bad):,} images are not shown; the first: {bad[0]}"] if bad else []
    shown = {
        entry: [(name.replace("_", " "), thumbnails[_image_key(cell)]) for name, cell in own.items()]
        for entry, own in cells.items()
    }
    return shown, notes


def _make_thumbnail(cell: Any, side: int) -> Cell:
    if is_missing(cell):
        return None
    inner = cell.cell if isinstance(cell, Altered) else cell
    path = inner.get("path") if isinstance(inner, Mapping) and inner.get("bytes") is None else inner
    if isinstance(path, str) and is_url(path):
        return BY_URL
    try:
        return thumbnail(decoded(cell, "image"), side)
    except Unreadable as error:
        return str(error)


def _image_key(cell: Any) -> Any:
    """Returns a key that is equal for cells of the same image: the path, the bytes, or the object's id."""
    if isinstance(cell, Altered):
        return _image_key(cell.cell), repr(replace(cell, cell=None))
    if isinstance(cell, Mapping):
        return cell.get("path") if cell.get("bytes") is None else cell["bytes"]
    return cell if isinstance(cell, str | bytes | None) else id(cell)
