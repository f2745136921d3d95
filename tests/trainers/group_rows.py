"""Rows in groups: one larger than a turn, one smaller, one too small, and a row without any."""

from __future__ import annotations

from datasets import Dataset, List, Value

SIZES = {"a": 7, "b": 6, "c": 4, "d": 2, "lone": 1}
RIVALS = {"a": ["b", "c", "d"], "b": ["a", "c"], "c": ["b", "gone"], "d": ["a"], "lone": ["a"]}


def names(number: int = 21) -> list[str | None]:
    """The group of each row: 7 a, 6 b, 4 c, 2 d and a lone one, in turn, and then none."""
    listed = [name for turn in range(max(SIZES.values())) for name, size in SIZES.items() if turn < size]
    return [*listed, *[None] * (number - len(listed))][:number]


def add_groups(rows: Dataset) -> Dataset:
    """The rows with `group`, `hard_negative_groups`, and a `generalized_caption` that only the first words of a
    caption make."""
    groups = names(len(rows))
    columns = {
        "group": (groups, Value("string")),
        "hard_negative_groups": ([RIVALS.get(name, []) for name in groups], List(Value("string"))),
        "generalized_caption": ([" ".join(text.split()[:2]) for text in rows["caption"]], Value("string")),
    }
    for name, (values, feature) in columns.items():
        rows = rows.add_column(name, values, feature=feature)
    return rows
