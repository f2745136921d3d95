"""Images that are in several pools, of which some may be missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation.sources import Pool
from hfcomp.evaluation.spec import BenchmarkData, Folders, Unavailable

SWIG = Pool("swig", obtain="Get images_512 of github.com/allenai/swig and pass the folder as --data swig=FOLDER.")


class Joined(Sequence[Any]):
    """Cells of several columns; `None` where a row has none."""

    def __init__(self, places: Sequence[tuple[Sequence[Any], int] | None]) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, row: Any) -> Any:
        place = self._places[row]
        return None if place is None else place[0][place[1]]


def with_images_of(
    items: BenchmarkData, pools: Sequence[Pool], names: Sequence[str], folders: Folders, beside: Path | None
) -> BenchmarkData:
    """Items with the images of every available pool; those of the others are left out, with the pool's name.

    Args:
        items: with file names in `image`, and maybe reasons in `left_out`.
        pools: that the files are in.
        names: of the pool of each row.
        folders: local data folders.
        beside: the benchmark's own folder.

    Raises:
        Unavailable: when no pool is available.
    """
    rows = items.rows
    files = rows["image"][:]
    reasons = rows["left_out"][:] if "left_out" in rows.column_names else [""] * len(files)
    places: list[tuple[Sequence[Any], int] | None] = [None] * len(files)
    origins, missing = [], []
    for pool in pools:
        own = [row for row, name in enumerate(names) if name == pool.name]
        try:
            cells, origin = pool.cells([files[row] for row in own], folders, beside)
        except Unavailable as error:
            missing.append(error)
            for row in own:
                reasons[row] = reasons[row] or f"no images of {pool.name}"
            continue
        origins.append(origin)
        for place, row in enumerate(own):
            places[row] = (cells, place)
    if not origins:
        raise Unavailable(" ".join(error.reason for error in missing), " ".join(error.how_to_fix for error in missing))
    rows = rows.remove_columns([name for name in ("image", "left_out") if name in rows.column_names])
    return replace(
        items,
        rows=rows.add_column("left_out", reasons),
        origin=replace(items.origin, pools=tuple(origins)),
        images={"image": Joined(places)},
        notes=tuple(map(str, missing)),
    )
