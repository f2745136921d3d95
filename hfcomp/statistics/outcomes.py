"""Outcomes: the long table behind every number of a report, and the files that hold it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hfcomp.checksums import CHECKSUM, with_checksum
from hfcomp.writing import write_parquet

Line = tuple[str, str, str]
"""Benchmark, subset and metric."""
LINE = ["benchmark", "subset", "metric"]
STRATUM = "stratum"
"""Column of strata. The value of a line with strata is the mean of their means."""
NO_SEED = -1
"""Seed of a model without one, such as a base. It is paired with every seed of other models."""
DEFAULTS = {"arm": "model", "setting": "", "seed": NO_SEED, "step": 0, "chance": math.nan, "tie": False, STRATUM: None}
COLUMNS = (
    *("arm", "setting", "seed", "step"),
    *(*LINE, "aspect", "chance", "item", "image_id", "value", "tie", STRATUM),
)
TYPES = {"seed": "int64", "step": "int64", "chance": "float64", "value": "float64", "tie": "bool"}
FILLED = ("arm", "setting", "seed", "step", *LINE, "item", "image_id")
"""Columns that need a value in every row."""
NUMBERS = ("chance", "value")
METADATA = b"hfcomp"
HASHED_ROWS = 2**14
"""Rows hashed at a time."""


class Outcomes:
    """One row per scored model, item and metric.

    | column | meaning |
    |---|---|
    | `arm` | the model; "model" if there is only one |
    | `setting`, `seed`, `step` | if a study has several of a model; otherwise "", `NO_SEED` and 0 |
    | `benchmark`, `subset`, `metric` | the line; a benchmark is given by its title |
    | `aspect` | `composition` (what a method should improve) or `general` (what it may forget) |
    | `chance` | value of a random scorer; NaN if undefined |
    | `item` | name of the item, unique within a line |
    | `image_id` | the unit that intervals resample |
    | `value` | 0 or 1 if items are right or wrong; a tie is wrong |
    | `tie` | whether the item is wrong, but would be right if ties were wins |
    | `stratum` | groups such as classes, if a line is the mean of their means; otherwise `None` |

    Args:
        table: Table with these columns. The first four, `chance`, `tie` and `stratum` are optional.

    Raises:
        ValueError: For a missing or unknown column, or a row without a value that every row needs.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        missing = [name for name in COLUMNS if name not in table and name not in DEFAULTS]
        if missing:
            raise ValueError(f"outcomes: found the columns {list(table.columns)}, but {missing} are missing.")
        unknown = [name for name in table.columns if name not in COLUMNS]
        if unknown:
            raise ValueError(f"outcomes: found the column {unknown[0]!r}, expected only {', '.join(COLUMNS)}.")
        table = table.assign(**{name: value for name, value in DEFAULTS.items() if name not in table})
        for column in FILLED:
            is_missing = table[column].isna().to_numpy()
            if is_missing.any():
                row = int(is_missing.argmax())
                raise ValueError(f"outcomes: column {column!r}, row {row}: found no value. Every row needs one.")
        self.table = table[list(COLUMNS)].astype(TYPES).reset_index(drop=True)

    @classmethod
    def of(cls, table: Outcomes | pd.DataFrame) -> Outcomes:
        """Returns outcomes unchanged, or creates them from a table."""
        return table if isinstance(table, cls) else cls(table)

    @classmethod
    def concat(cls, parts: Iterable[Outcomes]) -> Outcomes:
        return cls(pd.concat([part.table for part in parts], ignore_index=True))

    def __len__(self) -> int:
        return len(self.table)

    def select(self, **wanted: Any) -> Outcomes:
        """Selects the rows whose columns equal a value or one of a list of values."""
        chosen = self.table
        for column, values in wanted.items():
            chosen = chosen[chosen[column].isin(values if isinstance(values, list) else [values])]
        return Outcomes(chosen)

    def relabel(self, arms: Mapping[str, tuple[str, int]]) -> Outcomes:
        """Selects the rows of some arms and gives each arm a new name and a seed."""
        own = self.select(arm=list(arms))
        names, seeds = zip(*own.table["arm"].map(dict(arms)), strict=True)
        return own.assign(arm=list(names), seed=list(seeds))

    def assign(self, **values: Any) -> Outcomes:
        """Returns the same rows with new values for some columns."""
        return Outcomes(self.table.assign(**values))

    @property
    def aspects(self) -> dict[Line, str]:
        """The lines in order of appearance, with the aspect of each."""
        kinds = self.table[[*LINE, "aspect"]].drop_duplicates(LINE)
        return {tuple(kind[:3]): kind[3] for kind in kinds.itertuples(index=False, name=None)}

    @cached_property
    def digest(self) -> str:
        return items_hash(self.table)

    def write(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        write_table(path, self.table, about, digest=self.digest)


def label_items(table: pa.Table, arm: str, benchmark: str | None = None) -> pa.Table:
    """Puts a model's name into the first column, `arm`, and optionally replaces the benchmark's title."""
    labeled = table.drop_columns(["arm"]) if "arm" in table.column_names else table
    if benchmark is not None:
        place = labeled.schema.get_field_index("benchmark")
        labeled = labeled.set_column(place, "benchmark", pa.array([benchmark] * len(labeled), pa.string()))
    return labeled.add_column(0, "arm", pa.array([arm] * len(labeled), pa.string()))


def items_hash(items: pd.DataFrame) -> str:
    """Short content hash of a table of items, independent of the order of rows and columns.

    It is the hash of the sorted `repr` of its rows, with numbers as float and everything else as text.
    """
    names = sorted(items.columns)
    digest = hashlib.sha256(repr(names).encode())
    ends = [", "] * (len(names) - 1) + [",)" if len(names) == 1 else ")"]
    columns = [_render_cells(items[name], end) for name, end in zip(names, ends, strict=True)]
    # The rows are sorted without rendering them first: each column's texts are sorted, and because no text is a prefix
    # of another, comparing rows text by text gives the order of the whole rows.
    order = np.lexsort([place for place, _ in reversed(columns)]) if columns else np.arange(0)
    for start in range(0, len(order), HASHED_ROWS):
        rows = order[start : start + HASHED_ROWS]
        parts = [texts[place[rows]].tolist() for place, texts in columns]
        digest.update("".join(f"({''.join(row)}\n" for row in zip(*parts, strict=True)).encode())
    return f"sha256:{digest.hexdigest()[:16]}"


def _render_cells(column: pd.Series, end: str) -> tuple[NDArray[np.intp], NDArray[np.object_]]:
    """`[n]`, the index of each cell among the distinct ones, and these as in a row's `repr`, sorted."""
    # Numbers are rendered as float and everything else as text: Parquet may return the same value with another type,
    # and the table then still counts as the same.
    if column.name in NUMBERS:
        # Compare bits, because -0.0 and 0.0 are equal but rendered differently.
        bits, number = np.unique(column.astype(float).to_numpy().view(np.int64), return_inverse=True)
        cells = list(map(repr, bits.view(np.float64).tolist()))
    else:
        number, distinct = pd.factorize(column if _equal_is_same(column) else _as_texts(column))
        cells = [repr(str(value)) for value in np.asarray(distinct).tolist()]
        # None and NaN are the same value in Parquet.
        if (number < 0).any():
            number, cells = np.where(number < 0, len(cells), number), [*cells, repr(math.nan)]
    texts, place = np.unique(np.array([cell + end for cell in cells], dtype=object), return_inverse=True)
    return place[number], texts


def _equal_is_same(column: pd.Series) -> bool:
    """Whether equal cells render the same, unlike 1, 1.0 and True."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biu":
        return True
    return pd.api.types.infer_dtype(column, skipna=True) == "string"


def _as_texts(column: pd.Series) -> pd.Series:
    texts = column.map(str).astype(object)  # `astype(str)` in pandas 2 turns bytes into text
    return texts.mask(column.isna(), math.nan)


def write_table(
    path: str | Path, table: pd.DataFrame, about: Mapping[str, Any] | None = None, *, digest: str | None = None
) -> None:
    """Writes a table as Parquet, with a checksum of it and its description; see `hfcomp.writing.replacing`.

    Args:
        path: File to write.
        table: Outcomes, or other numbers per item.
        about: Description of the table in JSON types, which `read_table` returns.
        digest: `items_hash` of the table, if it is known.
    """
    content = pa.Table.from_pandas(table, preserve_index=False)
    sealed = {"about": dict(about or {}), CHECKSUM: _checksum(digest or items_hash(table), about or {})}
    metadata = {**content.schema.metadata, METADATA: json.dumps(sealed).encode()}
    write_parquet(path, content.replace_schema_metadata(metadata))


def read_table(path: Path, expected: str | None = None) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Reads a table written by `write_table`, and its `about`, which is empty for files of other programs.

    Args:
        path: Existing file.
        expected: `items_hash` of the table, if it is known.

    Raises:
        ValueError: If the file is not Parquet, was modified, or holds another table. Names the file.
    """
    try:
        table = pq.read_table(path).to_pandas()
        sealed = json.loads((pq.read_schema(path).metadata or {}).get(METADATA, b"{}"))
        about, actual = sealed.get("about", {}), items_hash(table)
        is_intact = not sealed or sealed[CHECKSUM] == _checksum(actual, about)
    # A damaged file can raise any error in its reader.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: not a Parquet file, or damaged ({reason}). Evaluate again.") from error
    if expected not in (None, actual):
        raise ValueError(
            f"{path} is damaged, or from a different evaluation than its results.json: expected items with hash "
            f"{expected}, found {actual}. Evaluate again, or restore the file from a copy."
        )
    if not is_intact:
        raise ValueError(f"{path} is damaged: its content does not match its checksum. Evaluate again.")
    return table, about


def _checksum(digest: str, about: Mapping[str, Any]) -> str:
    return with_checksum({"about": dict(about), "items": digest})[CHECKSUM]
