"""Audit checks on images: duplicates within a dataset, and overlap with the images that benchmarks score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Image, Value
from numpy.typing import NDArray

from hfcomp.analysis.audit.checks import Check, Example, share, skipped_check
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

NO_IMAGES = "the dataset has no images"
ONLY_EQUAL_PIXELS = "sandbox scenes all look alike, so only equal pixels count"


def duplicate_images(
    data: AuditSet, examples: int = 0, *, folder: Path | None = None, progress: bool = False
) -> Check:
    """Finds images that duplicate an image with another id.

    Their pixels are equal, or they look alike by the overlap guard's rule.
    """
    # Rows with the same id should show the same image, so only the first of them is compared with the other ids.
    rows = data.first_rows
    if not rows:
        return skipped_check("duplicate_images", NO_IMAGES)
    store = HashStore(folder or cache_folder("image_hashes"))
    hashed = hash_images(_whole_images(data), rows, store, name="column 'image'", progress=progress)
    readable = np.flatnonzero(hashed.index >= 0)
    pixel_hashes = hashed.records["pixels"][hashed.index[readable]]
    _, group, count = np.unique(pixel_hashes, return_inverse=True, return_counts=True)
    same = count[group.reshape(-1)] > 1
    is_sandbox = data.sources is not None and any(str(source).startswith(SANDBOX) for source in data.sources)
    alike = np.zeros(len(readable), dtype=bool) if is_sandbox else like_another(hashed.records)[hashed.index[readable]]
    notes = [*([ONLY_EQUAL_PIXELS] if is_sandbox else []), *_missing_image_notes(data)]
    readable_rows = [rows[index] for index in readable]
    duplicates = _duplicate_examples(readable_rows, group.reshape(-1).tolist(), same, alike & ~same)
    facts = {
        "equal_pixels": int(same.sum()),
        "same_look": int((alike & ~same).sum()),
        "unreadable": len(hashed.unreadable),
    }
    if hashed.unreadable:
        facts["first_unreadable"] = hashed.unreadable[0]
    return share(
        "duplicate_images", same | alike, facts=facts, examples=duplicates[:examples], reason="; ".join(notes)
    )


def _missing_image_notes(data: AuditSet) -> list[str]:
    number = int((~data.has_image).sum())
    return [f"{number:,} of {len(data):,} rows have no image and are not compared"] if number else []


def _duplicate_examples(
    rows: Sequence[int], groups: Sequence[int], same: NDArray[np.bool_], alike: NDArray[np.bool_]
) -> list[Example]:
    """Lists pairs of rows with equal pixels, then rows whose image looks like one with another id."""
    first: dict[int, int] = {}
    examples = []
    for index in np.flatnonzero(same):
        # Each further row of a group is paired with the group's first row.
        row, partner = rows[index], first.get(groups[index])
        if partner is not None:
            note = f"the images in rows {partner} and {row} have equal pixels but different ids"
            examples.append(Example(partner, note=note, images=("image",), other_row=row))
        first.setdefault(groups[index], row)
    for index in np.flatnonzero(alike):
        note = f"the image in row {rows[index]} looks like an image with another id"
        examples.append(Example(rows[index], note=note, images=("image",)))
    return examples


def overlap(
    data: AuditSet,
    names: Sequence[str],
    data_dir: Path | None,
    examples: int = 0,
    *,
    folder: Path | None = None,
    progress: bool = False,
) -> Check:
    """Finds rows that show an image which a benchmark scores, with counts per benchmark."""
    audited = data.loaded.benchmark.name if data.loaded is not None else ""
    folders = Folders(data_dir)
    selected = find_benchmarks(names) if names else [each for each in benchmarks().values() if folders.of(each.name)]
    # An audited benchmark would match its own images.
    selected = [benchmark for benchmark in selected if benchmark.name != audited]
    if not data.first_rows:
        return skipped_check("overlap", NO_IMAGES)
    if not selected:
        return skipped_check(
            "overlap",
            "no benchmark was selected. Pass --benchmarks A,B, or --data_dir with a folder that has benchmark data.",
        )
    rows, compared = _image_rows(data)
    flags, notes, table, shown_examples = np.zeros(len(data), dtype=bool), [], [], []
    for benchmark in selected:
        try:
            scored = scored_images(load_benchmark(benchmark, folders))
        except Unavailable as error:
            notes.append(f"{benchmark.name} was not compared: {error.reason}")
            continue
        result = find_overlap(compared, scored, columns=("image",), folder=folder, progress=progress)
        # Only the first row of an image was compared, but every row of that image counts.
        ids = {data.image_ids[rows[index]] for index in result.rows.tolist()}
        overlapping = np.array([name in ids for name in data.image_ids], dtype=bool) & data.has_image
        flags |= overlapping
        unsure = f"{len(result.unsure):,}" if len(result.unsure) else ""
        table.append(
            [benchmark.title, f"{int(overlapping.sum()):,}", f"{result.shown:,} of {result.scored:,}", unsure]
        )
        shown_examples += (
            [Example(rows[int(result.rows[0])], note=result.examples[0], images=("image",))]
            if len(result.rows)
            else []
        )
        notes += [f"{benchmark.name}: {remark}" for remark in (result.remark(), result.doubt()) if remark]
    # Rows without an image cannot overlap, so the percentage covers only the other rows.
    return _overlap_check(
        flags[data.has_image], table, [*_missing_image_notes(data), *notes], shown_examples[:examples]
    )


def _overlap_check(
    flags: NDArray[np.bool_], table: list[list[str]], notes: list[str], examples: Sequence[Example]
) -> Check:
    if not table:
        return skipped_check("overlap", "; ".join(notes))
    titles = [row[0] for row in table]
    header = ["benchmark", "rows", "scored images shown", "unsure rows"]
    facts = {"rows": int(flags.sum()), "compared": titles, "notes": notes}
    tables = [Table("images that benchmarks score", header, table)]
    note = "; ".join([f"compared with {', '.join(titles)}", *notes])
    return share("overlap", flags, facts=facts, tables=tables, examples=examples, reason=note)


def _image_rows(data: AuditSet) -> tuple[list[int], Dataset]:
    """Returns the first row of each image, and these rows as a dataset for the overlap guard."""
    rows = data.first_rows
    cells = [_to_image_cell(cell) for _, cell in each_cell(_whole_images(data), rows)]
    sources = [None if data.sources is None else data.sources[row] for row in rows]
    if data.loaded is not None:
        # A benchmark records where its images come from. The guard uses this to recognize other copies of an image.
        (scored,) = [images for images in scored_images(data.loaded) if images.name == data.loaded.benchmark.title]
        by_id = dict(zip(map(str, scored.ids or ()), scored.sources or (), strict=False))
        sources = [by_id.get(data.image_ids[row]) for row in rows]
    columns = {"image": cells, "image_id": [data.image_ids[row] for row in rows], "source": sources}
    features = Features({"image": Image(decode=False), "image_id": Value("string"), "source": Value("string")})
    return rows, Dataset.from_dict(columns, features=features)


def _whole_images(data: AuditSet) -> Sequence[Any]:
    """Returns the images by row. If a benchmark uses part of an image, returns the whole image."""
    cells = data.images["image"]
    if data.loaded is None:
        return cells
    return map_cells(cells, lambda cell, row: cell.cell if isinstance(cell, Crop | Fitted) else cell)


def _to_image_cell(cell: Any) -> Any:
    if is_missing(cell):
        return None
    return {"bytes": None, "path": str(cell)} if isinstance(cell, str | Path) else cell
