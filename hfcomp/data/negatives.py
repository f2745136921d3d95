"""Negatives that are created when rows are loaded: from keywords, with ratings, or from another row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from datasets import Dataset, Image
from numpy.typing import NDArray

from hfcomp.data.columns import NEGATIVE_FEATURES
from hfcomp.data.loading import TrainingRows
from hfcomp.data.sampling.draws import columns_by_caption
from hfcomp.data.sampling.neighbors import NEIGHBOR_COLUMNS
from hfcomp.fields import FIELDS, columns_of
from hfcomp.negatives.concreteness import ConcretenessRatings, concreteness_column
from hfcomp.negatives.keywords import PAPER, PAPER_TABLE, KeywordTable, Matching, negative_columns
from hfcomp.parsing.captions import caption_problem

RATINGS = "negative_concreteness"
RATED_WORDS, KEYWORDS = "negative_rated_words", "negative_keywords"


def with_keyword_negatives(
    dataset: Dataset,
    concepts: Sequence[str],
    *,
    num_negatives: int = 1,
    seed: int = 0,
    matching: Matching = PAPER,
    table: KeywordTable = PAPER_TABLE,
    others: str = "are used without one",
    log: Callable[[str], None],
) -> Dataset:
    """Adds keyword negatives to rows; existing negatives are removed, with all columns that describe them."""
    # Captions that are far too long or not Unicode are blanked, because the search would hang or fail on them.
    captions = [caption or "" for caption in dataset["caption"]]
    problems = {row: problem for row, caption in enumerate(captions) if (problem := caption_problem(caption))}
    for row in problems:
        captions[row] = ""
    columns = negative_columns(
        captions, concepts=concepts, num_negatives=num_negatives, seed=seed, matching=matching, table=table
    )
    replaced = [name for name in dataset.column_names if name.startswith("negative_")]
    if replaced and "mask" in dataset.column_names:
        replaced.append("mask")  # the mask belongs to the negative image
    if replaced:
        log(f"keyword negatives replace the dataset's own negatives; removed columns: {', '.join(replaced)}")
        dataset = dataset.remove_columns(replaced)
    for name, values in columns.items():
        dataset = dataset.add_column(name, values, feature=NEGATIVE_FEATURES[name])
    number = sum(bool(texts[0]) for texts in columns["negative_captions"])
    without = sum(caption is not None for caption in dataset["caption"]) - number
    log(f"{number:,} captions have a keyword and got a negative; {without:,} {others}")
    if problems:
        first = min(problems)
        log(f"{len(problems):,} of these were not searched for keywords; the first is row {first}: {problems[first]}")
    return dataset.add_column("negative_image", [None] * len(dataset), feature=Image())


def with_concreteness(dataset: Dataset, path: str, log: Callable[[str], None]) -> Dataset:
    column = rated_column(dataset.column_names)
    values, coverage = concreteness_column(dataset[column], ConcretenessRatings.from_file(path), column=column)
    if RATINGS in dataset.column_names:
        dataset = dataset.remove_columns(RATINGS)
    log(f"concreteness of negatives' {'rated words' if column == RATED_WORDS else 'keywords'}: {coverage}")
    return dataset.add_column(RATINGS, values, feature=NEGATIVE_FEATURES[RATINGS])


def rated_column(names: Sequence[str]) -> str:
    # A dataset built by an older version has no rated words, so its keywords are looked up instead.
    for name in (RATED_WORDS, KEYWORDS):
        if name in names:
            return name
    raise ValueError(
        f"concreteness_ratings are joined on the column {KEYWORDS!r}, which the dataset does not have; it has: "
        f"{', '.join(names)}. Set keyword_negatives (object, color, location, size), map the column with "
        "column_names, or remove concreteness_ratings."
    )


def derangement(photographs: Sequence[Any], seed: int) -> NDArray[np.int64]:
    """Draws a random permutation that assigns another row to each row, from another photograph if possible.

    If more than half of the rows show one photograph, some of them get rows of their own photograph.
    """
    order = np.random.default_rng(seed).permutation(len(photographs))
    places: dict[Any, int] = {}
    group = np.array([places.setdefault(photographs[row], len(places)) for row in order])
    order = order[np.argsort(group, kind="stable")]
    # The rows of each photograph are now adjacent in a ring. Shifting by the size of the largest group moves every row
    # out of its own group if no group has more than half of the ring. Redrawing until it fits would never end for
    # datasets with a larger group.
    most = min(int(np.bincount(group).max()), len(order) - 1)
    partners = np.empty(len(order), dtype=np.int64)
    partners[order] = np.roll(order, most)
    return partners


def is_negative(column: str) -> bool:
    # The mask belongs to the negative image.
    return column.startswith("negative_") or column in ("mask", "neighbor_ids")


class ShuffledNegatives(TrainingRows):
    """Training rows with the negatives of another row, even if those are missing; nothing is copied."""

    def __init__(self, dataset: Dataset, partners: NDArray[np.int64]) -> None:
        columns = [*dict.fromkeys((*columns_of(FIELDS), *NEIGHBOR_COLUMNS))]
        super().__init__(dataset, [name for name in columns if not is_negative(name)])
        self.negatives = TrainingRows(dataset, [name for name in columns if is_negative(name)])
        self.partners = partners
        self.by_caption = columns_by_caption(self.negatives.features)

    @property
    def features(self) -> dict[str, Any]:
        return {**super().features, **self.negatives.features}

    def column(self, name: str) -> list[Any]:
        if not is_negative(name):
            return super().column(name)
        values = self.negatives.column(name)
        shuffled = [values[partner] for partner in self.partners]
        if name not in self.by_caption:
            return shuffled
        pairs = zip(shuffled, super().column("caption"), strict=True)
        return [_fit_length(negatives, captions) for negatives, captions in pairs]

    def number_of_entries(self, name: str) -> int:
        # The partners are a permutation of the rows, so the number of entries is the same.
        return self.negatives.number_of_entries(name) if is_negative(name) else super().number_of_entries(name)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        own = super().__getitems__(indices)
        others = self.negatives.__getitems__(self.partners[indices].tolist())
        for row, other in zip(own, others, strict=True):
            other |= {name: _fit_length(other[name], row["caption"]) for name in self.by_caption}
        return [{**other, **row} for row, other in zip(own, others, strict=True)]


def _fit_length(values: list[Any] | None, captions: list[str]) -> list[Any] | None:
    """Fits the partner's negatives per caption to the row's number of captions, repeating them if it has more."""
    return [values[place % len(values)] for place in range(len(captions))] if values else values
