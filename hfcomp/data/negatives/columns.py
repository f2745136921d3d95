"""Columns of negatives that are made when a data set is loaded: keyword negatives, and concreteness ratings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from datasets import Dataset, Image

from hfcomp.data.features import NEGATIVE_FEATURES
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
    others: str = "take part without",
    log: Callable[[str], None],
) -> Dataset:
    """The rows with keyword negatives; the negatives they had are removed with all columns that describe them.

    Args:
        dataset: with one caption per row; where it is None or has a `caption_problem`, all negatives are masked.
        concepts: as in `negative_columns`.
        num_negatives: likewise.
        seed: likewise.
        matching: likewise.
        table: likewise.
        others: the log's words for captions without a keyword.
        log: receives a line about what was made and what was removed.

    Raises:
        ValueError: as `negative_columns`.
    """
    captions = [caption or "" for caption in dataset["caption"]]
    problems = {row: problem for row, caption in enumerate(captions) if (problem := caption_problem(caption))}
    for row in problems:
        captions[row] = ""
    columns = negative_columns(
        captions, concepts=concepts, num_negatives=num_negatives, seed=seed, matching=matching, table=table
    )
    replaced = [name for name in dataset.column_names if name.startswith("negative_")]
    if replaced and "mask" in dataset.column_names:
        replaced.append("mask")  # of the negative image
    if replaced:
        log(f"keyword negatives take the place of the data set's own, with its columns {', '.join(replaced)}")
        dataset = dataset.remove_columns(replaced)
    for name, values in columns.items():
        dataset = dataset.add_column(name, values, feature=NEGATIVE_FEATURES[name])
    made = sum(bool(texts[0]) for texts in columns["negative_captions"])
    without = sum(caption is not None for caption in dataset["caption"]) - made
    log(f"{made:,} captions have a keyword and got a negative; {without:,} {others}")
    if problems:
        first = min(problems)
        log(f"in {len(problems):,} of these keywords are not looked for; the first is row {first}: {problems[first]}")
    return dataset.add_column("negative_image", [None] * len(dataset), feature=Image())


def with_concreteness(dataset: Dataset, path: str, log: Callable[[str], None]) -> Dataset:
    """The rows with the concreteness of their negatives' keywords as `negative_concreteness`.

    Args:
        dataset: with `negative_rated_words`, the entries of the ratings that a build found, or `negative_keywords`.
        path: of the ratings, see `ConcretenessRatings.from_file`.
        log: receives a line about what was found.

    Raises:
        ValueError: for rows without keywords, or a file of ratings that cannot be read.
    """
    column = rated_column(dataset.column_names)
    values, coverage = concreteness_column(dataset[column], ConcretenessRatings.from_file(path), column=column)
    if RATINGS in dataset.column_names:
        dataset = dataset.remove_columns(RATINGS)
    log(f"concreteness of negatives' {'rated words' if column == RATED_WORDS else 'keywords'}: {coverage}")
    return dataset.add_column(RATINGS, values, feature=NEGATIVE_FEATURES[RATINGS])


def rated_column(names: Sequence[str]) -> str:
    """The column whose words are looked up in the ratings: `negative_rated_words` where it is there, else keywords.

    Args:
        names: of the data set's columns.

    Raises:
        ValueError: where neither is there.
    """
    for name in (RATED_WORDS, KEYWORDS):
        if name in names:
            return name
    raise ValueError(
        f"concreteness_ratings are joined to the column {KEYWORDS!r}, which the data set does not have; it has: "
        f"{', '.join(names)}. Set keyword_negatives (object, color, location, size), map the column with "
        "column_names, or leave concreteness_ratings out."
    )
