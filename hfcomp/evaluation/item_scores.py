"""The scores behind the outcomes: cosines of each item's images and texts, as a table and a file."""

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
"""Value of `texts_of` for the name of an image's class, if items have no texts of their own."""


def item_scores(benchmark: str, scored: ScoredItems) -> pa.Table:
    """Returns each item's texts and their cosines with its images, one row per text column and image column.

    | column | content |
    |---|---|
    | `benchmark` | title of the benchmark |
    | `subset`, `item`, `image_id` | names of the benchmark's row |
    | `texts_of` | the text column, such as `negative_captions`; for classified images `class` or the attribute |
    | `image_of` | the image column, such as `negative_image` |
    | `texts` | a list; "" for a missing text |
    | `cosines` | one per text, float32; NaN for a missing text or image; null for classes |
    """
    import pyarrow as pa

    rows = scored.items.rows
    names = {name: pa.array(scored.items.names[name], pa.string()) for name in ("subset", "item", "image_id")}
    parts = [
        pa.table({"benchmark": pa.array([benchmark] * len(rows)), **names, **columns})
        for columns in (*_columns(scored), *_classes(scored))
    ]
    # The empty table provides the types, because a benchmark without scores has no columns to take them from.
    return pa.concat_tables([_empty(), *parts])


def _empty() -> pa.Table:
    import pyarrow as pa

    texts = [(name, pa.string()) for name in ("benchmark", "subset", "item", "image_id", "texts_of", "image_of")]
    return pa.schema([*texts, ("texts", pa.list_(pa.string())), ("cosines", pa.list_(pa.float32()))]).empty_table()


def _columns(scored: ScoredItems) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    for (image, name), values in scored.entry_scores():
        starts, texts = _flatten(scored.columns[name], column_values(scored.items.rows, name))
        offsets = pa.array(starts, pa.int32())
        yield {
            "texts_of": pa.array([name] * (len(starts) - 1)),
            "image_of": pa.array([image] * (len(starts) - 1)),
            "texts": pa.ListArray.from_arrays(offsets, pa.array(texts, pa.string())),
            "cosines": pa.ListArray.from_arrays(offsets, pa.array(values.astype(np.float32))),
        }


def _flatten(column: TextColumn, values: Sequence[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """Returns the offsets at which the texts of each row begin, `[n + 1]`, and all texts."""
    if column.offsets is None:
        return np.arange(len(values) + 1), list(values)
    # Empty texts are kept, because offsets count them.
    return column.offsets, [text or "" for texts in values for text in texts]


def _classes(scored: ScoredItems) -> Iterator[dict[str, Any]]:
    """Yields the class names of rows without texts, for each attribute if there are several."""
    import pyarrow as pa

    items, names = scored.items, {}
    if scored.columns:
        return
    if items.classes and "label" in items.rows.column_names:
        names[CLASS] = [[items.classes[label]] for label in items.rows["label"][:]]
    for attribute in items.prompts:
        names[attribute] = [[name] for name in items.rows[attribute][:]]
    for name, texts in names.items():
        yield {
            "texts_of": pa.array([name] * len(texts)),
            "image_of": pa.array(["image"] * len(texts)),
            "texts": pa.array(texts, pa.list_(pa.string())),
            "cosines": pa.nulls(len(texts), pa.list_(pa.float32())),
        }


def write_scores(path: Path, scores: pa.Table | None) -> None:
    """Writes the scores; without scores, removes those of an earlier evaluation."""
    if scores is None:
        # A file of earlier scores next to new items would show the wrong numbers.
        path.unlink(missing_ok=True)
    else:
        write_parquet(path, scores)


def read_scores(path: Path) -> pa.Table | None:
    """Reads the scores from a file. Returns None if the file does not exist."""
    import pyarrow.parquet as pq

    if not path.is_file():
        return None
    try:
        return pq.read_table(path)
    except Exception as error:  # readers raise various errors for a damaged file
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"{path}: not a Parquet file, or damaged ({reason}). Evaluate again, or remove the file; the page then "
            "shows neither texts nor scores."
        ) from error
