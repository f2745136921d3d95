"""Rows with captions and negatives, read by the same rules for pages, audits, analyses, evaluation and training.

| subject | rule |
|---|---|
| photograph | `image_id`, otherwise the image's file name, otherwise a hash of its bytes ([`hfcomp.data.image_ids`]) |
| caption from a list | `CaptionChoice`: the longest, the first, or all (one row per caption) |
| text | a string that is not only white space; a string in place of a list is a list of one |
| pair | a row's caption and one of its negatives, both of them texts |
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
"""Columns with one entry per negative caption, and their names in a table of pairs."""


@dataclass(frozen=True, kw_only=True)
class RowSource:
    """Source of rows (see `load_training_set`), optionally with captions from a file (see `with_captions_of`)."""

    name: str
    split: str = "train"
    config: str | None = None
    column_names: Mapping[str, str] | None = None
    captions_file: str | None = None
    key_column: str | None = None
    captions_columns: str | None = None
    condition: str | None = None  # column=value of the rows to keep
    streaming: bool = False


def read_rows(source: RowSource, log: Log) -> Rows:
    """Reads rows under contract names; `log` receives lines about the rows that were read, joined and left out."""
    part = {"split": source.split, "config": source.config}
    rows = (load_training_stream if source.streaming else load_source)(source.name, **part)
    if source.streaming:
        log(f"{source.name} is streamed: its rows are read during training")
    else:
        log(f"{len(rows):,} row{'' if len(rows) == 1 else 's'} from {source.name}")
    if source.captions_file:  # before renaming, because key columns have the dataset's own names
        columns = {"key_column": source.key_column, "file_columns": source.captions_columns}
        rows = with_captions_of(rows, source.captions_file, column_names=source.column_names, log=log, **columns)
    if source.condition:
        rows = rows_where(rows, source.condition, log)
    return contract_rows(rows, source.name, source.column_names, **part)


def rows_where(dataset: Dataset, condition: str, log: Log) -> Dataset:
    """Selects the rows that match `column=value`, compared as lower-case text."""
    column, _, wanted = condition.partition("=")
    if column not in dataset.column_names:
        raise ValueError(
            f"dataset_filter={condition!r}: the dataset has no column {column!r}; it has: "
            f"{', '.join(dataset.column_names)}."
        )
    keep = [index for index, value in enumerate(dataset[column]) if str(value).lower() == wanted.lower()]
    log(f"{len(keep):,} rows match {condition}; {len(dataset) - len(keep):,} are left out")
    return dataset.select(keep)


def complete_rows(dataset: Dataset, *, captions: bool, negatives: bool = False) -> Dataset:
    """Selects the rows that have a caption, an unmasked first negative, or both, as requested."""
    # Call this last, after all columns were added: `add_column` writes selected rows to disk, with their images.
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
    """Reduces lists of captions to one caption per row; a dataset without such lists is returned unchanged.

    Args:
        dataset: Dataset in the column contract, with or without `caption`.
        choice: Caption to keep: the longest (see `choose_texts`), the first, or all, in one row each (see
            `every_caption`).
        log: Receives a line about the choice, and another if captions are skipped.
        keep_others: Whether to move the other captions to `positive_captions`.
        allow_missing: Whether a row may have no caption; its caption is then `None`.
    """
    if not has_lists(dataset.features):
        return dataset
    if choice == "all":
        rows = every_caption(dataset, log, allow_missing=allow_missing)
        first = len(dataset) if allow_missing else 0  # these rows have first captions, or none
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
        # The negatives belong to the chosen caption. The other captions are still true of the image.
        others.append([*(text for text in texts if text != caption), *texts_of(positives[row])])
        problems += [f"row {row}: {problem}" for problem in skipped]
    log(f"several captions per image: using the {choice}")
    if problems:
        log(f"{len(problems):,} captions are skipped; the first is in {problems[0]}")
    dataset = with_column(dataset, CAPTION, chosen, Value("string"))
    return with_column(dataset, POSITIVES, others, List(Value("string"))) if keep_others else dataset


def every_caption(dataset: Dataset, log: Log, *, allow_missing: bool = False) -> Dataset:
    """Makes one row per caption. The rows of an image share it, its `image_id` and all other columns without copying.

    An image with fewer captions than others temporarily has rows whose caption is `None`, until all columns exist. A
    missing `image_id` is derived from the image file; otherwise all captions of row n get `row n`.
    """
    if not has_lists(dataset.features):
        raise ValueError(
            f"captions=all: column 'caption' contains {dataset.features.get(CAPTION) or 'nothing'}, expected lists of "
            "strings. Remove captions=all, or use column_names to map the column that has the lists."
        )
    texts = [texts_of(captions) for captions in dataset[CAPTION]]
    for row, captions in enumerate(texts):
        if not captions and not allow_missing:
            raise without_text(dataset[row][CAPTION], row)
    named = IMAGE_ID in dataset.column_names
    names, kind = _image_names(dataset)
    images = dataset.remove_columns([CAPTION, IMAGE_ID] if named else CAPTION)
    # Adding the column again writes filtered rows to disk once, at this point.
    images = images.add_column(IMAGE_ID, names, feature=kind)
    most = max(1, *map(len, texts)) if texts else 0
    log(f"one row per caption: {sum(map(len, texts)):,} rows from {len(images):,} images")
    # Concatenate the table with itself, once per caption of an image, which shares memory. If `select` repeated rows,
    # the next added column would write them to disk, with their images.
    captions = [row[number] if number < len(row) else None for number in range(most) for row in texts]
    return concatenate_datasets([images] * most).add_column(CAPTION, captions, feature=Value("string"))


def _image_names(dataset: Dataset) -> tuple[list[Any], Any]:
    """Returns the column `image_id` and its type; missing entries are replaced by texts."""
    names = column_of(dataset, IMAGE_ID)
    if min([image_key(name, row) for row, name in enumerate(names)], default=0) >= 0:
        return names, dataset.features.get(IMAGE_ID, Value("string"))
    return photographs_or_rows(dataset), Value("string")


def without_text(captions: Any, row: int) -> ValueError:
    return ValueError(
        f"column 'caption', row {row}: found {captions!r}, expected a string. Remove the row, add a caption, or "
        "exclude such rows with dataset_filter."
    )


@dataclass(frozen=True, eq=False)
class PairTable:
    """Texts and pairs of a dataset's rows.

    Attributes:
        texts: Table with a row for each true caption, a row's own caption first: `row`, `image_id`, `text`.
        pairs: Table with a row for each negative that is a text, if its row has a caption: `row`, `place` in the list,
            `image_id`, `caption`, `negative`, and the names in `NEGATIVE_FACTS`, which are `None` if missing.
        without_caption: Indices of rows without a caption.
        masked: Number of negatives that are not texts or belong to a row without a caption.
    """

    texts: pd.DataFrame
    pairs: pd.DataFrame
    without_caption: list[int]
    masked: int


def pair_table(columns: Mapping[str, Sequence[Any]], image_ids: Sequence[str]) -> PairTable:
    """Makes tables of captions and negatives from rows with one `caption` each or, as in benchmarks, `captions`."""
    texts: list[tuple[Any, ...]] = []
    pairs: list[tuple[Any, ...]] = []
    masked, without = 0, []
    names = [name for name in (CAPTION, "captions", POSITIVES, NEGATIVES, *NEGATIVE_FACTS) if name in columns]
    for number, values in enumerate(zip(image_ids, *(columns[name] for name in names), strict=True)):
        image_id, row = values[0], dict(zip(names, values[1:], strict=True))
        captions = row_captions(row)
        without += [] if captions else [number]
        texts += [(number, image_id, text) for text in (*captions, *texts_of(row.get(POSITIVES)))]
        for place, text in enumerate(as_list(row.get(NEGATIVES))):
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
    """Returns a row's own captions: the column `caption`, otherwise `captions`, which benchmarks have."""
    return texts_of(row.get(CAPTION)) or texts_of(row.get("captions"))


def entry(row: Mapping[str, Any], column: str, place: int) -> Any:
    """Returns a row's entry for the negative at `place` in its list; `None` if missing."""
    values = as_list(row.get(column))
    return values[place] if place < len(values) else None


def check_entries(columns: Mapping[str, Sequence[Any]], place: str) -> None:
    """Raises ValueError if a caption or negative is not a text, or a column lacks an entry for a negative."""
    for row, (caption, negatives) in enumerate(zip(columns[CAPTION], columns[NEGATIVES], strict=True)):
        if caption is not None and not isinstance(caption, str):
            raise ValueError(
                f"{place}, column {CAPTION!r}, row {row}: found {caption!r}, expected a string. Name the caption "
                "column: --column_names caption=..."
            )
        if not all(text is None or isinstance(text, str) for text in as_list(negatives)):
            raise ValueError(f"{place}, column {NEGATIVES!r}, row {row}: found {negatives!r}, expected strings.")
        for name in NEGATIVE_FACTS:
            values = columns[name][row] if name in columns else None
            number = len(as_list(negatives))
            if values is not None and len(as_list(values)) != number:
                raise ValueError(
                    f"{place}, column {name!r}, row {row}: found {values!r}, expected a list with {number} "
                    "entries, one per entry of negative_captions. Correct the row, or remove the column."
                )


def column_of(dataset: Dataset, name: str) -> list[Any]:
    """Returns a column of all rows, or a list of `None` if the dataset has no such column."""
    return dataset.with_format(None)[name][:] if name in dataset.column_names else [None] * len(dataset)


def as_list(value: Any) -> list[Any]:
    """Wraps an entry in a list: a single value becomes a list of one, `None` an empty list."""
    return [] if value is None else list(value) if isinstance(value, list | tuple | np.ndarray) else [value]


def texts_of(value: Any) -> list[str]:
    """Returns the non-blank texts of an entry that is a text, a list of texts or `None`."""
    return [text for text in as_list(value) if is_text(text)]


def is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
