"""Rows with several captions of their image: the longest of them, or one row per caption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datasets import Dataset, LargeList, List, Value, concatenate_datasets

from hfcomp.data.image_ids import IMAGE_ID, image_key, photographs_or_rows
from hfcomp.parsing import tokens

Log = Callable[[str], None]


def longest_caption(dataset: Dataset, log: Log) -> Dataset:
    """Slipform, section 2.2: the longest caption where there are several (most tokens, see `longest_text`).

    Captions with a `caption_problem` are passed over in rows that have others; where all have one, the first stays.

    Args:
        dataset: with or without a column `caption`.
        log: receives a line where rows hold lists, and one where captions are skipped.

    Raises:
        ValueError: for a row with a list of captions that holds no text.
        ModuleNotFoundError: where a row has several and spaCy, whose tokens are counted, is not installed.
    """
    if "caption" not in dataset.column_names or not isinstance(dataset.features["caption"], List | LargeList):
        return dataset
    chosen, problems = [], []
    for row, captions in enumerate(dataset["caption"]):
        longest, passed_over = tokens.longest_caption(_texts(captions, row))
        problems += [f"row {row}: {problem}" for problem in passed_over]
        chosen.append(longest)
    log("several captions per image: the longest is used")
    if problems:
        log(f"{len(problems):,} captions are skipped; the first is in {problems[0]}")
    return dataset.remove_columns("caption").add_column("caption", chosen)


def every_caption(dataset: Dataset, log: Log) -> Dataset:
    """A row for every caption, which share their image, `image_id` and all other columns.

    No image is copied: the table is laid under itself as often as an image has captions, which shares its memory, and
    the texts. Rows taken twice by `select` would instead be written out, with their bytes, by the next
    column that is added. So an image with fewer captions than another has rows without any, `None`, until all columns
    are there. An `image_id` that is missing is filled in by the image's file, else as `row n` for all captions of
    row n.

    Args:
        dataset: with a column `caption` of lists.
        log: receives a line about the number of rows.

    Raises:
        ValueError: for a column that holds no lists, or a row without text.
    """
    feature = dataset.features.get("caption")
    if not isinstance(feature, List | LargeList):
        raise ValueError(
            f"captions=all: column 'caption' holds {feature or 'nothing'}, expected lists of texts. Leave captions "
            "out, or name the column of lists with column_names."
        )
    texts = [_texts(captions, row) for row, captions in enumerate(dataset["caption"])]
    named = IMAGE_ID in dataset.column_names
    names, kind = _image_names(dataset)
    images = dataset.remove_columns(["caption", IMAGE_ID] if named else "caption")
    # added again, so that filtered rows are written out here, once
    images = images.add_column(IMAGE_ID, names, feature=kind)
    most = max(map(len, texts), default=0)
    log(f"every caption is a row: {sum(map(len, texts)):,} rows of {len(images):,} images")
    captions = [row[number] if number < len(row) else None for number in range(most) for row in texts]
    return concatenate_datasets([images] * most).add_column("caption", captions, feature=Value("string"))


def _image_names(dataset: Dataset) -> tuple[list[Any], Any]:
    """The column `image_id` and its type; if entries are missing, with texts in their place."""
    names = dataset[IMAGE_ID][:] if IMAGE_ID in dataset.column_names else [None] * len(dataset)
    if min([image_key(name, row) for row, name in enumerate(names)], default=0) >= 0:
        return names, dataset.features.get(IMAGE_ID, Value("string"))
    return photographs_or_rows(dataset), Value("string")


def _texts(captions: list[str | None] | None, row: int) -> list[str]:
    texts = [text for text in captions or [] if text and text.strip()]
    if not texts:
        raise ValueError(
            f"column 'caption', row {row}: {captions!r} holds no text. Remove the row, give it a caption, or "
            "leave such rows out with dataset_filter."
        )
    return texts
