"""Rows with captions and negatives, read by one set of rules for pages, audits, analyses, evaluation and training.

| question | rule |
|---|---|
| which photograph | `image_id`, else the image's file name, else a hash of its bytes ([`hfcomp.data.image_ids`]) |
| which caption of a list | `CaptionChoice`: the longest, the first, or all, a row for each |
| what is a text | a string with something but white space; a string in place of a list is a list of one |
| what is a pair | a row's caption and one of its negatives, both of them texts |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset, IterableDataset, LargeList, List, Value, concatenate_datasets

from hfcomp.data.formats.caption_files import with_captions_of
from hfcomp.data.image_ids import IMAGE_ID, image_key, photographs_or_rows, with_column
from hfcomp.data.loading import contract_rows, load_training_stream
from hfcomp.data.sources import load_source
from hfcomp.parsing.tokens import CaptionChoice, choose_texts

Rows = Dataset | IterableDataset
Log = Callable[[str], None]
CAPTION, POSITIVES, NEGATIVES = "caption", "positive_captions", "negative_captions"
NEGATIVE_FACTS = {
    "negative_kinds": "kind",
    "negative_keywords": "keyword",
    "negative_categories": "category",
    "negative_rated_words": "rated_word",
    "negative_concreteness": "concreteness",
}
"""Columns that have an entry for each negative caption, and what they are called in a table of pairs."""


@dataclass(frozen=True, kw_only=True)
class RowSource:
    """Where rows are read from (see `load_training_set`), with captions from a file (see `with_captions_of`)."""

    name: str
    split: str = "train"
    config: str | None = None
    column_names: Mapping[str, str] | None = None
    captions_file: str | None = None
    key_column: str | None = None
    captions_columns: str | None = None
    condition: str | None = None  # column=value of the rows that are kept
    streaming: bool = False


def read_rows(source: RowSource, log: Log) -> Rows:
    """Rows under the contract's names; `log` receives a line about what was read, joined and left out."""
    part = {"split": source.split, "config": source.config}
    rows = (load_training_stream if source.streaming else load_source)(source.name, **part)
    if source.streaming:
        log(f"{source.name} is streamed: its rows are read while training goes on")
    else:
        log(f"{len(rows):,} rows from {source.name}")
    if source.captions_file:  # before renaming, as keys are columns of the dataset's own
        columns = {"key_column": source.key_column, "file_columns": source.captions_columns}
        rows = with_captions_of(rows, source.captions_file, column_names=source.column_names, log=log, **columns)
    if source.condition:
        rows = rows_where(rows, source.condition, log)
    return contract_rows(rows, source.name, source.column_names, **part)


def rows_where(dataset: Dataset, condition: str, log: Log) -> Dataset:
    """The rows that have a value in a column, `column=value`, compared as text in lower case."""
    column, _, wanted = condition.partition("=")
    if column not in dataset.column_names:
        raise ValueError(
            f"dataset_filter={condition!r}: no column {column!r}; has: {', '.join(dataset.column_names)}."
        )
    keep = [index for index, value in enumerate(dataset[column]) if str(value).lower() == wanted.lower()]
    log(f"{len(keep):,} of them have {condition}; {len(dataset) - len(keep):,} are left out")
    return dataset.select(keep)


def complete_rows(dataset: Dataset, *, captions: bool, negatives: bool = False) -> Dataset:
    """The rows that have a caption, or a first negative that is not masked, or both, as asked."""
    # Called last, when no column is added any more: `add_column` writes selected rows out, with their images.
    keep = range(len(dataset))
    if captions:
        keep = [row for row, caption in enumerate(dataset[CAPTION]) if caption is not None]
    if negatives:
        texts = dataset[NEGATIVES][:]
        keep = [row for row in keep if texts[row][0]]
    return dataset if len(keep) == len(dataset) else dataset.select(keep)


def has_lists(features: Mapping[str, Any]) -> bool:
    return isinstance(features.get(CAPTION), List | LargeList)


def choose_captions(
    dataset: Dataset, choice: CaptionChoice, log: Log, *, keep_others: bool = False, allow_missing: bool = False
) -> Dataset:
    """Rows with one caption each; those of a dataset that has no lists of captions are returned unchanged.

    Args:
        dataset: in the column contract, with or without `caption`.
        choice: of the captions of a row: the longest (see `choose_texts`), the first, or all, a row for each (see
            `every_caption`).
        log: receives a line about the choice, and one if captions are skipped.
        keep_others: whether the captions that are not chosen become `positive_captions`.
        allow_missing: whether a row may have no caption, which is then `None`.
    """
    if not has_lists(dataset.features):
        return dataset
    if choice == "all":
        rows = every_caption(dataset, log, allow_missing=allow_missing)
        first = len(dataset) if allow_missing else 0  # the first rows are those of first captions, or of none
        texts = rows[CAPTION]
        return rows.select([row for row, text in enumerate(texts) if text is not None or row < first])
    chosen, others, problems = [], [], []
    positives = column_of(dataset, POSITIVES)
    for row, captions in enumerate(dataset[CAPTION]):
        texts = texts_of(captions)
        if not texts and not allow_missing:
            raise without_text(captions, row)
        (caption, *_), skipped = choose_texts(texts, choice) if texts else ([None], [])
        chosen.append(caption)
        # Negatives belong to the chosen caption. The other captions are still true of the image.
        others.append([*(text for text in texts if text != caption), *texts_of(positives[row])])
        problems += [f"row {row}: {problem}" for problem in skipped]
    log(f"several captions per image: the {choice} is used")
    if problems:
        log(f"{len(problems):,} captions are skipped; the first is in {problems[0]}")
    dataset = with_column(dataset, CAPTION, chosen, Value("string"))
    return with_column(dataset, POSITIVES, others, List(Value("string"))) if keep_others else dataset


def every_caption(dataset: Dataset, log: Log, *, allow_missing: bool = False) -> Dataset:
    """A row for every caption, which share their image, `image_id` and all other columns; no image is copied.

    An image with fewer captions than another has rows without any, `None`, until all columns are there. An `image_id`
    that is missing is filled in by the image's file, else as `row n` for all captions of row n.
    """
    if not has_lists(dataset.features):
        raise ValueError(
            f"captions=all: column 'caption' holds {dataset.features.get(CAPTION) or 'nothing'}, expected lists of "
            "texts. Leave captions out, or name the column of lists with column_names."
        )
    texts = [texts_of(captions) for captions in dataset[CAPTION]]
    for row, captions in enumerate(texts):
        if not captions and not allow_missing:
            raise without_text(dataset[row][CAPTION], row)
    named = IMAGE_ID in dataset.column_names
    names, kind = _image_names(dataset)
    images = dataset.remove_columns([CAPTION, IMAGE_ID] if named else CAPTION)
    # Added again, so filtered rows are written out here, once.
    images = images.add_column(IMAGE_ID, names, feature=kind)
    most = max(1, *map(len, texts)) if texts else 0
    log(f"every caption is a row: {sum(map(len, texts)):,} rows of {len(images):,} images")
    # The table is concatenated with itself once per caption of an image, which shares its memory. Rows taken twice by
    # `select` would instead be written out, with their images, by the next column that is added.
    captions = [row[number] if number < len(row) else None for number in range(most) for row in texts]
    return concatenate_datasets([images] * most).add_column(CAPTION, captions, feature=Value("string"))


def _image_names(dataset: Dataset) -> tuple[list[Any], Any]:
    """The column `image_id` and its type; if entries are missing, with texts in their place."""
    names = column_of(dataset, IMAGE_ID)
    if min([image_key(name, row) for row, name in enumerate(names)], default=0) >= 0:
        return names, dataset.features.get(IMAGE_ID, Value("string"))
    return photographs_or_rows(dataset), Value("string")


def without_text(captions: Any, row: int) -> ValueError:
    return ValueError(
        f"column 'caption', row {row}: {captions!r} holds no text. Remove the row, give it a caption, or leave such "
        "rows out with dataset_filter."
    )


@dataclass(frozen=True, eq=False)
class PairTable:
    """The texts of rows, and their pairs.

    Attributes:
        texts: a row for each true caption, the row's own caption first: `row`, `image_id`, `text`.
        pairs: a row for each negative that is a text, of a row with a caption: `row`, `place` in its list, `image_id`,
            `caption`, `negative`, and the names of `NEGATIVE_FACTS`, `None` without an entry.
        without_caption: rows without a caption.
        masked: negatives that are no texts, or are of a row without a caption.
    """

    texts: pd.DataFrame
    pairs: pd.DataFrame
    without_caption: list[int]
    masked: int


def pair_table(columns: Mapping[str, Sequence[Any]], image_ids: Sequence[str]) -> PairTable:
    """The captions and negatives of rows, with one caption each or `captions` as benchmarks have, as tables."""
    texts: list[tuple[Any, ...]] = []
    pairs: list[tuple[Any, ...]] = []
    masked, without = 0, []
    names = [name for name in (CAPTION, "captions", POSITIVES, NEGATIVES, *NEGATIVE_FACTS) if name in columns]
    for number, values in enumerate(zip(image_ids, *(columns[name] for name in names), strict=True)):
        image_id, row = values[0], dict(zip(names, values[1:], strict=True))
        captions = row_captions(row)
        without += [] if captions else [number]
        texts += [(number, image_id, text) for text in (*captions, *texts_of(row.get(POSITIVES)))]
        for place, text in enumerate(listed(row.get(NEGATIVES))):
            if not captions or not is_text(text):
                masked += 1
                continue
            facts = (entry(row, name, place) for name in NEGATIVE_FACTS)
            pairs.append((number, place, image_id, captions[0], text, *facts))
    heads = ["row", "place", "image_id", "caption", "negative", *NEGATIVE_FACTS.values()]
    return PairTable(
        pd.DataFrame(texts, columns=["row", "image_id", "text"]), pd.DataFrame(pairs, columns=heads), without, masked
    )


def row_captions(row: Mapping[str, Any]) -> list[str]:
    """A row's own captions, that of the column `caption` before those that a benchmark has in `captions`."""
    return texts_of(row.get(CAPTION)) or texts_of(row.get("captions"))


def entry(row: Mapping[str, Any], column: str, place: int) -> Any:
    """A row's entry for the negative at a place in its list; `None` without one."""
    values = listed(row.get(column))
    return values[place] if place < len(values) else None


def check_entries(columns: Mapping[str, Sequence[Any]], place: str) -> None:
    """Raises ValueError for a caption or negative that is no text, or a column without an entry for each negative."""
    for row, (caption, negatives) in enumerate(zip(columns[CAPTION], columns[NEGATIVES], strict=True)):
        if caption is not None and not isinstance(caption, str):
            raise ValueError(
                f"{place}, column {CAPTION!r}, row {row}: found {caption!r}, expected a text. Name the column of "
                "captions: --column_names caption=..."
            )
        if not all(one is None or isinstance(one, str) for one in listed(negatives)):
            raise ValueError(f"{place}, column {NEGATIVES!r}, row {row}: found {negatives!r}, expected texts.")
        for name in NEGATIVE_FACTS:
            values = columns[name][row] if name in columns else None
            number = len(listed(negatives))
            if values is not None and len(listed(values)) != number:
                raise ValueError(
                    f"{place}, column {name!r}, row {row}: found {values!r}, expected a list of {number}, an entry "
                    "for each of negative_captions. Correct the row, or remove the column."
                )


def column_of(dataset: Dataset, name: str) -> list[Any]:
    """A column of all rows; `None` in each if the dataset has none of the name."""
    return dataset.with_format(None)[name][:] if name in dataset.column_names else [None] * len(dataset)


def listed(value: Any) -> list[Any]:
    """An entry as a list: of one for a single value, empty for none."""
    return [] if value is None else list(value) if isinstance(value, list | tuple | np.ndarray) else [value]


def texts_of(value: Any) -> list[str]:
    """The texts of an entry that is a text, a list of texts or nothing, without blank ones."""
    return [one for one in listed(value) if is_text(one)]


def is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
