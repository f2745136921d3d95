"""Which rows of a data set are trained on: those that meet a condition, those that have what training needs."""

from __future__ import annotations

from collections.abc import Callable

from datasets import Dataset


def rows_where(dataset: Dataset, condition: str, log: Callable[[str], None]) -> Dataset:
    """The rows that have a value in a column.

    Args:
        dataset: any.
        condition: `column=value`, compared as text in lower case.
        log: receives a line about how many they are.

    Raises:
        ValueError: for a column that the data set does not have.
    """
    column, _, wanted = condition.partition("=")
    if column not in dataset.column_names:
        raise ValueError(
            f"dataset_filter={condition!r}: no column {column!r}; has: {', '.join(dataset.column_names)}."
        )
    keep = [index for index, value in enumerate(dataset[column]) if str(value).lower() == wanted.lower()]
    log(f"{len(keep):,} of them have {condition}; {len(dataset) - len(keep):,} are left out")
    return dataset.select(keep)


def complete_rows(dataset: Dataset, *, captions: bool, negatives: bool) -> Dataset:
    """The rows that have what is asked for; to be chosen last, as adding a column writes a choice of rows out.

    Args:
        dataset: in the column contract.
        captions: leave out rows whose caption is None.
        negatives: leave out rows whose first negative caption is masked.
    """
    keep = range(len(dataset))
    if captions:
        keep = [row for row, caption in enumerate(dataset["caption"]) if caption is not None]
    if negatives:
        texts = dataset["negative_captions"][:]
        keep = [row for row in keep if texts[row][0]]
    return dataset if len(keep) == len(dataset) else dataset.select(keep)
