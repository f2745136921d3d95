"""Images that cannot be decoded: found before anything is scored, so all models score the same items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tqdm.auto import tqdm

from hfcomp.data.images import Unreadable
from hfcomp.evaluation.encoding.cells import Altered
from hfcomp.evaluation.encoding.content import decoded, distinct, image_key

DAMAGED = "image damaged"
"""Why a row is left out on request."""
THREADS = 8


def damaged_images(cells: Sequence[Any], column: str, *, progress: bool = False) -> dict[int, str]:
    """Decodes each distinct image of a column once; no more images are in memory than threads decode.

    Args:
        cells: as `decode_image` takes them, parts of images too; an empty one is not damaged, a missing file is.
        column: its name, for reasons.
        progress: whether to show a bar.

    Returns:
        By row why its image cannot be decoded, in the order of rows.
    """
    found: dict[int, str] = {}

    def key(row: int, cell: Any) -> bytes | None:
        try:
            return None if _is_empty(cell) else image_key(cell, _where(column, row))
        except Unreadable as error:
            found[row] = str(error)
            return None

    _, index, first = distinct(key(row, cell) for row, cell in enumerate(cells))
    with ThreadPoolExecutor(THREADS) as pool:
        tried = pool.map(lambda row: _problem(cells[row], _where(column, row)), first)
        reasons = list(tqdm(tried, total=len(first), desc="decoding images", disable=not progress, leave=False))
    found |= {row: reasons[place] for row, place in enumerate(index.tolist()) if place >= 0 and reasons[place]}
    return dict(sorted(found.items()))


def _is_empty(cell: Any) -> bool:
    cell = cell.cell if isinstance(cell, Altered) else cell
    return cell is None or (isinstance(cell, dict) and cell.get("bytes") is None and not cell.get("path"))


def _where(column: str, row: int) -> str:
    return f"column {column!r}, row {row}"


def _problem(cell: Any, where: str) -> str:
    try:
        decoded(cell, where)
    except Unreadable as error:
        return str(error)
    return ""


class CellsWithout(Sequence[Any]):
    """A column of images in which those of some rows are `None`.

    Args:
        cells: the column.
        rows: those without.
    """

    def __init__(self, cells: Sequence[Any], rows: Iterable[int]) -> None:
        self._cells, self._rows = cells, set(rows)

    def __len__(self) -> int:
        return len(self._cells)

    def __getitem__(self, row: Any) -> Any:
        return None if row in self._rows else self._cells[row]

    def __iter__(self) -> Iterator[Any]:
        if 2 * len(self._rows) > len(self):  # reading row by row is slower, reading most in vain slower still
            return (self[row] for row in range(len(self)))
        return (None if row in self._rows else value for row, value in enumerate(self._cells))
