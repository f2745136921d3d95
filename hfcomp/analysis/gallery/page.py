"""The page of a dataset: its rows with pictures and what models say of them, to search, sort and mark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, Image
from tqdm.auto import tqdm

from hfcomp.analysis.gallery.marks import SCHEMA_VERSION
from hfcomp.analysis.gallery.options import GalleryOptions
from hfcomp.analysis.gallery.rows import ShownRows, choose_rows, read_set, row_id, row_record
from hfcomp.analysis.gallery.scores import ModelScores, score_rows, score_tables
from hfcomp.data.images import Unreadable, decode_image
from hfcomp.data.known_names import parse_column_names
from hfcomp.data.publishing import without_local_paths
from hfcomp.data.urls import UrlAccess, url_access
from hfcomp.evaluation.cells import THREADS
from hfcomp.reporting.pages.page import (
    LIST_SCRIPT,
    LIST_STYLE,
    Cell,
    Thumbnail,
    Thumbnails,
    fill,
    mask_overlay,
    render_page,
    thumbnail,
)
from hfcomp.writing import check_free_file, write_text


@dataclass
class Pictures:
    distinct: list[Thumbnail] = field(default_factory=list)  # each picture once
    # Per row and column: number of the picture in `distinct`, reason why it cannot be read, or None.
    rows: list[dict[str, int | str | None]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    # Places of unreadable images by column, counted among the rows that are shown.
    unreadable: dict[str, set[int]] = field(default_factory=dict)

    def notes(self) -> list[str]:
        found = []
        for column, places in self.unreadable.items():
            if places:
                reason = self.rows[min(places)][column]
                number = f"{len(places):,} image{'s' * (len(places) > 1)} of column {column!r}"
                found.append(f"{number} cannot be read and {'are' if len(places) > 1 else 'is'} left out: {reason}")
        return found


def make_pictures(shown: ShownRows, side: int, *, progress: bool = False) -> Pictures:
    """Decodes and shrinks the images of all rows that are shown."""
    columns = shown.images
    found = Pictures(unreadable={column: set() for column in columns})
    numbers = Thumbnails(found.distinct)
    for place, (own_id, cells) in enumerate(_made(shown, columns, side, progress)):
        found.ids.append(own_id)
        found.rows.append({column: numbers.number(cell) for column, cell in cells.items()})
        for column, cell in cells.items():
            if isinstance(cell, str):
                found.unreadable[column].add(place)
    # A single unreadable image is a note. If all are, the column or folder is probably wrong.
    bad = found.unreadable["image"]
    if bad and len(bad) == sum(row["image"] is not None for row in found.rows):
        raise ValueError(f"none of the {len(bad):,} images can be read; the first: {found.rows[min(bad)]['image']}")
    return found


def _made(shown: ShownRows, columns: list[str], side: int, progress: bool) -> Iterable[tuple[str, dict[str, Cell]]]:
    # Ids are computed from the rows as they are read, because --apply computes them in the same way.
    whole = shown.whole.select(shown.numbers)

    def make(place: int) -> tuple[str, dict[str, Cell]]:
        row = shown.dataset[place]
        return row_id(whole[place]), _row_pictures(row, columns, side, shown.numbers[place])

    # Threads instead of processes: Pillow releases the GIL while it decodes.
    with ThreadPoolExecutor(THREADS) as pool:
        made = pool.map(make, range(len(shown.numbers)))
        yield from tqdm(made, total=len(shown.numbers), desc="pictures", disable=not progress, leave=False)


def _row_pictures(row: dict[str, Any], columns: list[str], side: int, number: int) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for column in columns:
        if row[column] is None:
            cells[column] = None
            continue
        try:
            image = decode_image(row[column], where=f"column {column!r}, row {number}")
        except Unreadable as error:
            cells[column] = str(error)
            continue
        cells[column] = (
            mask_overlay(image, _size_below(cells, image.size)) if column == "mask" else thumbnail(image, side)
        )
    return cells


def _size_below(cells: dict[str, Cell], own: tuple[int, int]) -> tuple[int, int]:
    """The size of the picture that a mask lies over; columns of masks come after those of images."""
    below = next((one for one in reversed(list(cells.values())) if isinstance(one, Thumbnail)), None)
    return (below.width, below.height) if below else own


def other_images(dataset: Dataset, shown: list[str]) -> list[str]:
    """Columns of images that no page shows."""
    return [name for name, kind in dataset.features.items() if isinstance(kind, Image) and name not in shown]


_FILES = Path(__file__).parent
PAGE = "gallery.html"


@dataclass(frozen=True)
class Gallery:
    path: Path
    rows: int
    notes: Sequence[str]


def write_gallery(name: str, path: Path, options: GalleryOptions, *, progress: bool = False) -> Gallery:
    """Writes one HTML page of rows of a dataset, with pictures and scores inside.

    Args:
        name: of the dataset: a folder, a file, a Hub id, or `sandbox`.
        path: of the page; a folder receives `gallery.html`.
    """
    path = page_path(path)
    # Checked before rows are read and scored, which may take minutes.
    if path.parent.exists() and not path.parent.is_dir():
        raise ValueError(f"{path.parent} exists and is not a page of hfcomp. Pass another --output.")
    check_free_file(path, options.overwrite, option="output")
    with url_access(UrlAccess.from_settings(options.allow_urls, options.url_timeout)):
        shown = choose_rows(read_set(name, options), name, options)
        records = [row_record(row, number) for row, number in zip(shown, shown.numbers, strict=True)]
        pictures = make_pictures(shown, options.image_size, progress=progress)
        models = score_rows(shown, records, pictures.unreadable, options, progress=progress) if options.models else []
    notes = [*pictures.notes(), *_notes(shown, models)]
    write_text(path, gallery_page(name, shown, records, pictures, models, options, notes))
    return Gallery(path, len(records), notes)


def page_path(path: Path) -> Path:
    """Where the page goes: a file ends in .html, anything else is a folder."""
    return path if path.suffix.lower() in (".html", ".htm") and not path.is_dir() else path / PAGE


def gallery_page(
    name: str,
    shown: ShownRows,
    records: Sequence[dict[str, Any]],
    pictures: Pictures,
    models: Sequence[ModelScores],
    options: GalleryOptions,
    notes: Sequence[str],
) -> str:
    """The text of the page, the same for the same rows, scores and options."""
    # Pages are passed on, so they name no folders of this machine.
    place = without_local_paths(name)
    rows = [
        {**record, "id": own_id, **images, "scores": [one.rows[place] for one in models] or None}
        for place, (record, own_id, images) in enumerate(zip(records, pictures.ids, pictures.rows, strict=True))
    ]
    about = _about(place, shown, options)
    body = fill(_FILES / "gallery.html", about=about, notes=notes, tables=score_tables(models))
    return render_page(
        f"Gallery of {Path(place).name}",
        body,
        styles=[LIST_STYLE, _FILES / "gallery.css"],
        scripts=[LIST_SCRIPT, _FILES / "gallery.js"],
        data={"about": _page_facts(place, shown, models, options), "pictures": pictures.distinct, "data": rows},
    )


def _page_facts(
    place: str, shown: ShownRows, models: Sequence[ModelScores], options: GalleryOptions
) -> dict[str, Any]:
    """What the script of the page has to know; `set` goes into the marks that it saves."""
    return {
        "columns": shown.images,
        "side": options.image_size,
        "fingerprint": shown.fingerprint,
        "models": [
            {"name": one.name, "place": without_local_paths(one.place), "scale": one.scale, "bias": one.bias}
            for one in models
        ],
        "set": {
            "schema_version": SCHEMA_VERSION,
            "dataset": place,
            "split": options.split,
            "config": options.config,
            "column_names": parse_column_names(options.column_names),
            "fingerprint": shown.fingerprint,
            "rows": len(shown.whole),
        },
    }


def _about(place: str, shown: ShownRows, options: GalleryOptions) -> str:
    number, total = len(shown.numbers), len(shown.whole)
    if number == total:
        which = f"All {total:,} rows"
    elif options.seed is None:
        which = f"The first {number:,} of {total:,} rows"
    else:
        which = f"{number:,} of {total:,} rows, drawn at random with seed {options.seed},"
    config = f", configuration {options.config}" if options.config else ""
    return f"{which} of {place}{config}, split {options.split}."


def _notes(shown: ShownRows, models: Sequence[ModelScores]) -> list[str]:
    hidden = other_images(shown.dataset, shown.images)
    found = list(shown.notes)
    found += [f"columns of images that are not shown: {', '.join(hidden)}"] if hidden else []
    found += [
        f"{one.truncated:,} texts are longer than the text tower of {one.name} and are cut for it"
        for one in models
        if one.truncated
    ]
    return found
