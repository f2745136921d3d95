"""Chains of builds: the texts that one build made, beside the images of its source, are the source of the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from datasets import Dataset, concatenate_datasets
from numpy.typing import NDArray

from hfcomp.data.loading import load_training_set
from hfcomp.generation.shards import SOURCE_ROW


def joined(source: Dataset, folder: Path | str) -> Dataset:
    """The rows of a finished build with the other columns of its source, such as images, which are not copied.

    The build's texts are copied once into the cache of `datasets`, in the order of the source. A build from the result
    notices when the texts change, see `hfcomp.generation.runner.fingerprint`.

    Args:
        source: of the build, or of the first one of a chain; memory-mapped, so that its images stay on disk.
        folder: of the build. Its features named the column `source_row`; a row of the source is in it once or never.

    Returns:
        The rows of the build in their order. Where both have a column, it is the build's; `source_row` is there too,
        so that the next build of the chain can hand it on.

    Raises:
        ValueError: for a build without `source_row` or rows, with a row of the source twice, or of another source.
    """
    made = load_training_set(str(folder))
    if SOURCE_ROW not in made.column_names:
        raise ValueError(
            f"{folder} does not say its rows' numbers in the source: it has no column {SOURCE_ROW!r}. Build it with "
            f"{SOURCE_ROW!r} among its features."
        )
    numbers = made.with_format("numpy")[SOURCE_ROW][:]
    _check_numbers(numbers, len(source), folder)
    return beside(source, made, numbers)


def beside(source: Dataset, made: Dataset, numbers: NDArray[np.int64]) -> Dataset:
    """Rows of texts with the other columns of a source, such as images, which are not copied.

    Args:
        source: memory-mapped, so that its images stay on disk.
        made: the texts; where both have a column, theirs counts.
        numbers: for each of their rows its row in the source, each at most once.

    Raises:
        ValueError: for a source that has a row twice.
    """
    # A mapping of rows that the source has, as after a filter, would make `datasets` copy the images.
    base, mapping = Dataset(source.data, info=source.info.copy(), split=source.split), source._indices
    rows = numbers if mapping is None else mapping.column(0).to_numpy()[numbers]
    places = np.zeros(len(base), np.int64)  # what stands in rows without texts is never read
    places[rows] = np.arange(len(rows))
    if (places[rows] != np.arange(len(rows))).any():
        raise ValueError("the source has a row twice. Pass it without a `select` that repeats rows.")
    texts = made.select(places).flatten_indices()
    others = base.select_columns([name for name in base.column_names if name not in made.column_names])
    return concatenate_datasets([others, texts], axis=1).select(rows)


def _check_numbers(numbers: np.ndarray, source_rows: int, folder: Path | str) -> None:
    if not len(numbers):
        raise ValueError(f"{folder} has no rows.")
    if numbers.min() < 0 or numbers.max() >= source_rows:
        raise ValueError(
            f"{folder} was built from another source: it has row {numbers.max():,} of it, and this one has "
            f"{source_rows:,} rows."
        )
    found, times = np.unique(numbers, return_counts=True)
    if times.max() > 1:
        raise ValueError(
            f"{folder} has row {found[times.argmax()]:,} of its source {times.max()} times; expected at most once."
        )
