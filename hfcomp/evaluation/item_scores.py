"""The scores behind outcomes: cosines of the images and texts of each item, as a table and a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.evaluation.spec import column_values
from hfcomp.writing import write_parquet

if TYPE_CHECKING:
    import pyarrow as pa

    from hfcomp.evaluation.encoding.embedded import ScoredItems, TextColumn

SCORES_FILE = "scores.parquet"
CLASS = "class"
"""The column of scores that names an image's class, where items have no texts of their own."""


def item_scores(benchmark: str, scored: ScoredItems) -> pa.Table:
    """The texts of each item and their cosines with its images; a row for each column of texts and of images.

    | column | what |
    |---|---|
    | `benchmark` | its title |
    | `subset`, `item`, `image_id` | of the benchmark's row |
    | `texts_of` | the column of texts, such as `negative_captions`; of images of classes `class`, or the attribute |
    | `image_of` | the column of images, such as `negative_image` |
    | `texts` | a list; "" where there is none |
    | `cosines` | one for each text, float32; NaN where there is no text or image; null for classes |
    """
    import pyarrow as pa

    rows = scored.items.rows
    names = {name: pa.array(scored.items.names[name], pa.string()) for name in ("subset", "item", "image_id")}
    parts = [
        pa.table({"benchmark": pa.array([benchmark] * len(rows)), **names, **columns})
        for columns in (*_columns(scored), *_classes(scored))
    ]
    # The empty table provides the types: a benchmark without scores has no column to take them from.
    return pa.concat_tables([_empty(), *parts])


def _empty() -> pa.Table:
    import pyarrow as pa

    texts = [(name, pa.string()) for name in ("benchmark", "subset", "item", "image_id", "texts_of", "image_of")]
    return pa.schema([*texts, ("texts", pa.list_(pa.string())), ("cosines", pa.list_(pa.float32()))]).empty_table()


def _columns(scored: ScoredItems) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    for (image, name), values in scored.entry_scores():
        starts, texts = _flattened(scored.columns[name], column_values(scored.items.rows, name))
        offsets = pa.array(starts, pa.int32())
        yield {
            "texts_of": pa.array([name] * (len(starts) - 1)),
            "image_of": pa.array([image] * (len(starts) - 1)),
            "texts": pa.ListArray.from_arrays(offsets, pa.array(texts, pa.string())),
            "cosines": pa.ListArray.from_arrays(offsets, pa.array(values.astype(np.float32))),
        }


def _flattened(column: TextColumn, values: Sequence[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """`[n + 1]`, where the texts of each row begin, and all of them."""
    if column.offsets is None:
        return np.arange(len(values) + 1), list(values)
    # Empty texts are kept, because offsets count them.
    return column.offsets, [text or "" for texts in values for text in texts]


def _classes(scored: ScoredItems) -> Iterator[dict[str, Any]]:
    """The names of the classes of rows without texts, of each attribute where there are several."""
    import pyarrow as pa

    items, named = scored.items, {}
    if scored.columns:
        return
    if items.classes and "label" in items.rows.column_names:
        named[CLASS] = [[items.classes[label]] for label in items.rows["label"][:]]
    for attribute in items.prompts:
        named[attribute] = [[name] for name in items.rows[attribute][:]]
    for name, texts in named.items():
        yield {
            "texts_of": pa.array([name] * len(texts)),
            "image_of": pa.array(["image"] * len(texts)),
            "texts": pa.array(texts, pa.list_(pa.string())),
            "cosines": pa.nulls(len(texts), pa.list_(pa.float32())),
        }


def write_scores(path: Path, scores: pa.Table | None) -> None:
    """Writes scores, or removes those of an earlier evaluation where there are none."""
    if scores is None:
        # A file of earlier scores next to new items would show the wrong numbers.
        path.unlink(missing_ok=True)
    else:
        write_parquet(path, scores)


def read_scores(path: Path) -> pa.Table | None:
    """The scores in a file; none where there is no file."""
    import pyarrow.parquet as pq

    if not path.is_file():
        return None
    try:
        return pq.read_table(path)
    except Exception as error:  # a damaged file raises whatever its readers run into
        said = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{path}: not a Parquet file, or damaged ({said}). Evaluate again, or remove it: the page then has no "
            "texts and scores."
        ) from error
