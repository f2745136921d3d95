"""Checks of images: copies within a set, and images that a benchmark scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Image, Value
from numpy.typing import NDArray

from hfcomp.analysis.audit.checks import Check, Example, share, unchecked
from hfcomp.analysis.audit.reading import AuditSet
from hfcomp.data.overlap import find_overlap
from hfcomp.data.overlap.image_columns import SANDBOX, each_cell
from hfcomp.data.overlap.image_hashes import HashStore, hash_images, like_another
from hfcomp.evaluation.benchmarks import benchmarks, find_benchmarks
from hfcomp.evaluation.cells import Crop, Fitted, is_missing, map_cells
from hfcomp.evaluation.items.scored_images import scored_images
from hfcomp.evaluation.loaded import load_benchmark
from hfcomp.evaluation.spec import Folders, Unavailable
from hfcomp.reporting.report import Table
from hfcomp.store import cache_folder

NO_IMAGES = "the set has no images"
DRAWN = "scenes of the sandbox all look alike: only equal pixels count"


def duplicate_images(
    data: AuditSet, examples: int = 0, *, folder: Path | None = None, progress: bool = False
) -> Check:
    """Images that are a copy of an image with another id: equal pixels, or alike as the overlap guard has it."""
    # Rows of one id should show one image anyway, so only one of them is compared with the other ids.
    rows = data.first_rows
    if not rows:
        return unchecked("duplicate_images", NO_IMAGES)
    store = HashStore(folder or cache_folder("image_hashes"))
    hashed = hash_images(_whole_images(data), rows, store, name="column 'image'", progress=progress)
    read = np.flatnonzero(hashed.index >= 0)
    of_image = hashed.records["pixels"][hashed.index[read]]
    _, group, count = np.unique(of_image, return_inverse=True, return_counts=True)
    same = count[group.reshape(-1)] > 1
    drawn = data.sources is not None and any(str(one).startswith(SANDBOX) for one in data.sources)
    alike = np.zeros(len(read), dtype=bool) if drawn else like_another(hashed.records)[hashed.index[read]]
    notes = [*([DRAWN] if drawn else []), *_missing(data)]
    own_rows = [rows[place] for place in read]
    shown = _copies(own_rows, group.reshape(-1).tolist(), same, alike & ~same)
    facts = {
        "equal_pixels": int(same.sum()),
        "same_look": int((alike & ~same).sum()),
        "unreadable": len(hashed.unreadable),
    }
    if hashed.unreadable:
        facts["first_unreadable"] = hashed.unreadable[0]
    return share("duplicate_images", same | alike, facts=facts, examples=shown[:examples], reason="; ".join(notes))


def _missing(data: AuditSet) -> list[str]:
    number = int((~data.has_image).sum())
    return [f"{number:,} of {len(data):,} rows have no image and are not compared"] if number else []


def _copies(
    rows: Sequence[int], groups: Sequence[int], same: NDArray[np.bool_], alike: NDArray[np.bool_]
) -> list[Example]:
    """Pairs of rows with equal pixels, then rows whose image looks like another one."""
    first: dict[int, int] = {}
    shown = []
    for place in np.flatnonzero(same):
        # The first row of a group is the partner of all its others.
        row, known = rows[place], first.get(groups[place])
        if known is not None:
            words = f"rows {known} and {row} have equal pixels and different ids"
            shown.append(Example(known, note=words, images=("image",), other_row=row))
        first.setdefault(groups[place], row)
    looks = [rows[place] for place in np.flatnonzero(alike)]
    return shown + [Example(row, note=f"row {row} looks like another image", images=("image",)) for row in looks]


def overlap(
    data: AuditSet,
    names: Sequence[str],
    data_dir: Path | None,
    examples: int = 0,
    *,
    folder: Path | None = None,
    progress: bool = False,
) -> Check:
    """Rows that show an image which a benchmark scores, each benchmark by itself."""
    own = data.loaded.benchmark.name if data.loaded is not None else ""
    folders = Folders(data_dir)
    chosen = find_benchmarks(names) if names else [one for one in benchmarks().values() if folders.of(one.name)]
    # An audited benchmark would find its own images.
    chosen = [one for one in chosen if one.name != own]
    if not data.first_rows:
        return unchecked("overlap", NO_IMAGES)
    if not chosen:
        return unchecked("overlap", "no benchmark is named: --benchmarks A,B, or --data_dir with their data")
    rows, compared = _image_rows(data)
    found, notes, table, words = np.zeros(len(data), dtype=bool), [], [], []
    for benchmark in chosen:
        try:
            scored = scored_images(load_benchmark(benchmark, folders))
        except Unavailable as error:
            notes.append(f"{benchmark.name} is not compared: {error.reason}")
            continue
        one = find_overlap(compared, scored, columns=("image",), folder=folder, progress=progress)
        # Only the first row of an image was compared, but all rows of that image count.
        ids = {data.image_ids[rows[place]] for place in one.rows.tolist()}
        own_rows = np.array([name in ids for name in data.image_ids], dtype=bool) & data.has_image
        found |= own_rows
        unsure = f"{len(one.unsure):,}" if len(one.unsure) else ""
        table.append([benchmark.title, f"{int(own_rows.sum()):,}", f"{one.shown:,} of {one.scored:,}", unsure])
        words += [Example(rows[int(one.rows[0])], note=one.examples[0], images=("image",))] if len(one.rows) else []
        notes += [f"{benchmark.name}: {said}" for said in (one.remark(), one.doubt()) if said]
    # Rows without an image can show none, so the percentage is of the other rows.
    return _overlap_check(found[data.has_image], table, [*_missing(data), *notes], words[:examples])


def _overlap_check(
    found: NDArray[np.bool_], table: list[list[str]], notes: list[str], examples: Sequence[Example]
) -> Check:
    if not table:
        return unchecked("overlap", "; ".join(notes))
    titles = [row[0] for row in table]
    header = ["benchmark", "rows", "scored images shown", "unsure rows"]
    facts = {"rows": int(found.sum()), "compared": titles, "notes": notes}
    tables = [Table("images that benchmarks score", header, table)]
    note = "; ".join([f"compared with {', '.join(titles)}", *notes])
    return share("overlap", found, facts=facts, tables=tables, examples=examples, reason=note)


def _image_rows(data: AuditSet) -> tuple[list[int], Dataset]:
    """The first row of each image, and these as a set that the overlap guard takes."""
    rows = data.first_rows
    cells = [_cell(cell) for _, cell in each_cell(_whole_images(data), rows)]
    sources = [None if data.sources is None else data.sources[row] for row in rows]
    if data.loaded is not None:
        # A benchmark records where its images come from, by which the guard recognizes other copies of them.
        (scored,) = [one for one in scored_images(data.loaded) if one.name == data.loaded.benchmark.title]
        by_id = dict(zip(map(str, scored.ids or ()), scored.sources or (), strict=False))
        sources = [by_id.get(data.image_ids[row]) for row in rows]
    columns = {"image": cells, "image_id": [data.image_ids[row] for row in rows], "source": sources}
    features = Features({"image": Image(decode=False), "image_id": Value("string"), "source": Value("string")})
    return rows, Dataset.from_dict(columns, features=features)


def _whole_images(data: AuditSet) -> Sequence[Any]:
    """The images by row; of a part of an image, as a benchmark may have it, the whole."""
    cells = data.images["image"]
    if data.loaded is None:
        return cells
    return map_cells(cells, lambda cell, row: cell.cell if isinstance(cell, Crop | Fitted) else cell)


def _cell(cell: Any) -> Any:
    return None if is_missing(cell) else {"bytes": None, "path": str(cell)} if isinstance(cell, str | Path) else cell
