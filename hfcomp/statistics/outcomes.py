"""Outcomes: the long table of what every number of a report is made from, and the files that hold it."""

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
"""The column of strata: a line with strata is the mean of their means."""
NO_SEED = -1
"""The seed of a model without one, such as a base: it is paired with every seed of another."""
DEFAULTS = {
    "arm": "model",
    "setting": "",
    "seed": NO_SEED,
    "step": 0,
    "chance": math.nan,
    "tie": False,
    STRATUM: None,
}
COLUMNS = (
    *("arm", "setting", "seed", "step"),
    *(*LINE, "aspect", "chance", "item", "image_id", "value", "tie", STRATUM),
)
TYPES = {"seed": "int64", "step": "int64", "chance": "float64", "value": "float64", "tie": "bool"}
FILLED = ("arm", "setting", "seed", "step", *LINE, "item", "image_id")
"""Columns that have a value in every row."""
NUMBERS = ("chance", "value")
METADATA = b"hfcomp"
HASHED_ROWS = 2**14
"""At a time."""


class Outcomes:
    """One row per scored model, item and metric.

    | column | what |
    |---|---|
    | `arm` | the model; "model" where there is one |
    | `setting`, `seed`, `step` | where a study has several of a model; "", `NO_SEED` and 0 where it has not |
    | `benchmark`, `subset`, `metric` | the line; a benchmark by its title |
    | `aspect` | `composition` (what a method is to gain) or `general` (what it may forget) |
    | `chance` | of a random scorer; NaN if undefined |
    | `item` | its name, unique within a line |
    | `image_id` | what intervals resample |
    | `value` | 0 or 1 where items are right or wrong; a tie is wrong |
    | `tie` | whether the item would be right if ties were wins, and is not |
    | `stratum` | where a line is the mean of the means of these, such as classes; else `None` |

    Args:
        table: with these columns; the first four, `chance`, `tie` and `stratum` may be left out.

    Raises:
        ValueError: for a missing or unknown column, or a row without a value that every row needs.
    """

    def __init__(self, table: pd.DataFrame) -> None:
        absent = [name for name in COLUMNS if name not in table and name not in DEFAULTS]
        if absent:
            raise ValueError(f"outcomes: found the columns {list(table.columns)}, expected also {absent}.")
        unknown = [name for name in table.columns if name not in COLUMNS]
        if unknown:
            raise ValueError(f"outcomes: found the column {unknown[0]!r}, expected only {', '.join(COLUMNS)}.")
        table = table.assign(**{name: value for name, value in DEFAULTS.items() if name not in table})
        for column in FILLED:
            missing = table[column].isna().to_numpy()
            if missing.any():
                row = int(missing.argmax())
                raise ValueError(f"outcomes: column {column!r}, row {row}: found no value. Every row needs one.")
        self.table = table[list(COLUMNS)].astype(TYPES).reset_index(drop=True)

    @classmethod
    def of(cls, table: Outcomes | pd.DataFrame) -> Outcomes:
        """Outcomes as they are, or from a table."""
        return table if isinstance(table, cls) else cls(table)

    @classmethod
    def concat(cls, parts: Iterable[Outcomes]) -> Outcomes:
        return cls(pd.concat([part.table for part in parts], ignore_index=True))

    def __len__(self) -> int:
        return len(self.table)

    def select(self, **wanted: Any) -> Outcomes:
        """The rows whose columns have a value, or one of a list."""
        chosen = self.table
        for column, values in wanted.items():
            chosen = chosen[chosen[column].isin(values if isinstance(values, list) else [values])]
        return Outcomes(chosen)

    def relabel(self, arms: Mapping[str, tuple[str, int]]) -> Outcomes:
        """The rows of some arms, each under another name and with a seed."""
        own = self.select(arm=list(arms))
        names, seeds = zip(*own.table["arm"].map(dict(arms)), strict=True)
        return own.assign(arm=list(names), seed=list(seeds))

    def assign(self, **values: Any) -> Outcomes:
        """The same rows with other values of some columns."""
        return Outcomes(self.table.assign(**values))

    @property
    def aspects(self) -> dict[Line, str]:
        """The lines in order of appearance, and what each shows."""
        kinds = self.table[[*LINE, "aspect"]].drop_duplicates(LINE)
        return {tuple(kind[:3]): kind[3] for kind in kinds.itertuples(index=False, name=None)}

    @cached_property
    def digest(self) -> str:
        return items_hash(self.table)

    def write(self, path: str | Path, about: Mapping[str, Any] | None = None) -> None:
        write_table(path, self.table, about, digest=self.digest)


def label_items(table: pa.Table, arm: str, benchmark: str | None = None) -> pa.Table:
    """The table with a model's name in the column `arm`, the first one, and with another title of the benchmark."""
    kept = table.drop_columns(["arm"]) if "arm" in table.column_names else table
    if benchmark is not None:
        place = kept.schema.get_field_index("benchmark")
        kept = kept.set_column(place, "benchmark", pa.array([benchmark] * len(kept), pa.string()))
    return kept.add_column(0, "arm", pa.array([arm] * len(kept), pa.string()))


def items_hash(items: pd.DataFrame) -> str:
    """Short content hash of a table of items; the order of its rows and columns does not change it.

    It is that of the sorted `repr` of its rows, numbers as float and all else as text.
    """
    names = sorted(items.columns)
    digest = hashlib.sha256(repr(names).encode())
    ends = [", "] * (len(names) - 1) + [",)" if len(names) == 1 else ")"]
    columns = [_written(items[name], end) for name, end in zip(names, ends, strict=True)]
    # The rows are sorted without being written first: each column's texts are sorted, and because none of them begins
    # another one, comparing rows text by text gives the order of the whole rows.
    order = np.lexsort([place for place, _ in reversed(columns)]) if columns else np.arange(0)
    for start in range(0, len(order), HASHED_ROWS):
        rows = order[start : start + HASHED_ROWS]
        parts = [texts[place[rows]].tolist() for place, texts in columns]
        digest.update("".join(f"({''.join(row)}\n" for row in zip(*parts, strict=True)).encode())
    return f"sha256:{digest.hexdigest()[:16]}"


def _written(column: pd.Series, end: str) -> tuple[NDArray[np.intp], NDArray[np.object_]]:
    """`[n]`, the place of each cell among the distinct ones, and these as a row's `repr` has them, sorted."""
    # Numbers are written as float and all else as text: Parquet may give back another type of the same value, and the
    # table is then still the same.
    if column.name in NUMBERS:
        # Compared as bits, because -0.0 and 0.0 are equal and written differently.
        bits, number = np.unique(column.astype(float).to_numpy().view(np.int64), return_inverse=True)
        cells = list(map(repr, bits.view(np.float64).tolist()))
    else:
        number, distinct = pd.factorize(column if _equal_is_same(column) else _as_texts(column))
        cells = [repr(str(one)) for one in np.asarray(distinct).tolist()]
        # None and NaN are one value in Parquet.
        if (number < 0).any():
            number, cells = np.where(number < 0, len(cells), number), [*cells, repr(math.nan)]
    texts, place = np.unique(np.array([cell + end for cell in cells], dtype=object), return_inverse=True)
    return place[number], texts


def _equal_is_same(column: pd.Series) -> bool:
    """Whether equal cells are written alike, unlike 1, 1.0 and True."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biu":
        return True
    return pd.api.types.infer_dtype(column, skipna=True) == "string"


def _as_texts(column: pd.Series) -> pd.Series:
    texts = column.map(str).astype(object)  # `astype(str)` of pandas 2 makes texts of bytes
    return texts.mask(column.isna(), math.nan)


def write_table(
    path: str | Path, table: pd.DataFrame, about: Mapping[str, Any] | None = None, *, digest: str | None = None
) -> None:
    """Writes a table as Parquet with a checksum of it and of what it is of; see `hfcomp.writing.replacing`.

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
    """The table that `write_table` wrote, and its `about`, which is empty for a file of another program.

    Args:
        path: Existing file.
        expected: `items_hash` of the table, if it is known.

    Raises:
        ValueError: naming the file, if it is not Parquet, was modified, or holds another table.
    """
    try:
        table = pq.read_table(path).to_pandas()
        sealed = json.loads((pq.read_schema(path).metadata or {}).get(METADATA, b"{}"))
        about, found = sealed.get("about", {}), items_hash(table)
        whole = not sealed or sealed[CHECKSUM] == _checksum(found, about)
    # A damaged file raises whatever its reader runs into.
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: not a Parquet file, or damaged ({said}). Evaluate again.") from error
    if expected not in (None, found):
        raise ValueError(
            f"{path} is damaged, or from another evaluation than its results.json: expected items of "
            f"{expected}, found {found}. Evaluate again, or restore the file from a copy."
        )
    if not whole:
        raise ValueError(f"{path} is damaged: its content does not match its checksum. Evaluate again.")
    return table, about


def _checksum(digest: str, about: Mapping[str, Any]) -> str:
    return with_checksum({"about": dict(about), "items": digest})[CHECKSUM]
