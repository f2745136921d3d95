"""Writes the gallery page: dataset rows with images and model scores, to search, sort and mark."""

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
    distinct: list[Thumbnail] = field(default_factory=list)  # each thumbnail once
    # Per row and column: index in `distinct`, the reason for an unreadable image, or None.
    rows: list[dict[str, int | str | None]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    # Positions of unreadable images by column, counted among the shown rows.
    unreadable: dict[str, set[int]] = field(default_factory=dict)

    def notes(self) -> list[str]:
        notes = []
        for column, places in self.unreadable.items():
            if places:
                reason = self.rows[min(places)][column]
                number = f"{len(places):,} image{'s' * (len(places) > 1)} of column {column!r}"
                notes.append(f"{number} cannot be read and {'are' if len(places) > 1 else 'is'} left out: {reason}")
        return notes


def make_pictures(shown: ShownRows, side: int, *, progress: bool = False) -> Pictures:
    """Decodes and downscales the images of all shown rows."""
    columns = shown.images
    pictures = Pictures(unreadable={column: set() for column in columns})
    numbers = Thumbnails(pictures.distinct)
    for index, (id_of_row, cells) in enumerate(_render_rows(shown, columns, side, progress)):
        pictures.ids.append(id_of_row)
        pictures.rows.append({column: numbers.number(cell) for column, cell in cells.items()})
        for column, cell in cells.items():
            if isinstance(cell, str):
                pictures.unreadable[column].add(index)
    # One unreadable image is only a note. If all are unreadable, the column or folder is probably wrong.
    unreadable = pictures.unreadable["image"]
    if unreadable and len(unreadable) == sum(row["image"] is not None for row in pictures.rows):
        raise ValueError(
            f"none of the {len(unreadable):,} images can be read. The first: {pictures.rows[min(unreadable)]['image']}"
        )
    return pictures


def _render_rows(
    shown: ShownRows, columns: list[str], side: int, progress: bool
) -> Iterable[tuple[str, dict[str, Cell]]]:
    # Compute ids from the rows as read from the dataset, because --apply does the same.
    whole = shown.whole.select(shown.numbers)

    def make(index: int) -> tuple[str, dict[str, Cell]]:
        row = shown.dataset[index]
        return row_id(whole[index]), _row_pictures(row, columns, side, shown.numbers[index])

    # Threads suffice, because Pillow releases the GIL while it decodes.
    with ThreadPoolExecutor(THREADS) as pool:
        results = pool.map(make, range(len(shown.numbers)))
        yield from tqdm(results, total=len(shown.numbers), desc="images", disable=not progress, leave=False)


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
            mask_overlay(image, _image_size_below(cells, image.size)) if column == "mask" else thumbnail(image, side)
        )
    return cells


def _image_size_below(cells: dict[str, Cell], mask_size: tuple[int, int]) -> tuple[int, int]:
    """Returns the size of the image under a mask; mask columns come after image columns."""
    below = next((cell for cell in reversed(list(cells.values())) if isinstance(cell, Thumbnail)), None)
    return (below.width, below.height) if below else mask_size


def other_images(dataset: Dataset, shown: list[str]) -> list[str]:
    """Lists image columns that the page does not show."""
    return [name for name, kind in dataset.features.items() if isinstance(kind, Image) and name not in shown]


_FILES = Path(__file__).parent
PAGE = "gallery.html"


@dataclass(frozen=True)
class Gallery:
    path: Path
    rows: int
    notes: Sequence[str]


def write_gallery(name: str, path: Path, options: GalleryOptions, *, progress: bool = False) -> Gallery:
    """Writes dataset rows as one self-contained HTML page with images and scores.

    Args:
        name: Dataset: a folder, a file, a Hub id, or `sandbox`.
        path: Page to write. In a folder, the page is named `gallery.html`.
    """
    path = page_path(path)
    # Check the path before rows are read and scored, which may take minutes.
    if path.parent.exists() and not path.parent.is_dir():
        raise ValueError(
            f"{path.parent} exists and is not a folder, so the page cannot be written there. Pass another --output."
        )
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
    """Returns the path of the page. A path that does not end in .html or .htm is a folder."""
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
    """Returns the HTML of the page, which is the same for the same rows, scores and options."""
    # Pages are shared, so they must not contain local folder names.
    dataset = without_local_paths(name)
    rows = [
        {**record, "id": id_of_row, **images, "scores": [model.rows[index] for model in models] or None}
        for index, (record, id_of_row, images) in enumerate(zip(records, pictures.ids, pictures.rows, strict=True))
    ]
    description = _describe_selection(dataset, shown, options)
    body = fill(_FILES / "gallery.html", about=description, notes=notes, tables=score_tables(models))
    return render_page(
        f"Gallery of {Path(dataset).name}",
        body,
        styles=[LIST_STYLE, _FILES / "gallery.css"],
        scripts=[LIST_SCRIPT, _FILES / "gallery.js"],
        data={"about": _page_facts(dataset, shown, models, options), "pictures": pictures.distinct, "data": rows},
    )


def _page_facts(
    dataset: str, shown: ShownRows, models: Sequence[ModelScores], options: GalleryOptions
) -> dict[str, Any]:
    """Returns the data for the page's script. The script copies `set` into the marks file."""
    return {
        "columns": shown.images,
        "side": options.image_size,
        "fingerprint": shown.fingerprint,
        "models": [
            {"name": model.name, "place": without_local_paths(model.place), "scale": model.scale, "bias": model.bias}
            for model in models
        ],
        "set": {
            "schema_version": SCHEMA_VERSION,
            "dataset": dataset,
            "split": options.split,
            "config": options.config,
            "column_names": parse_column_names(options.column_names),
            "fingerprint": shown.fingerprint,
            "rows": len(shown.whole),
        },
    }


def _describe_selection(dataset: str, shown: ShownRows, options: GalleryOptions) -> str:
    number, total = len(shown.numbers), len(shown.whole)
    if number == total:
        selection = f"All {total:,} rows"
    elif options.seed is None:
        selection = f"The first {number:,} of {total:,} rows"
    else:
        selection = f"{number:,} of {total:,} rows, sampled at random with seed {options.seed},"
    config = f", configuration {options.config}" if options.config else ""
    return f"{selection} of {dataset}{config}, split {options.split}."


def _notes(shown: ShownRows, models: Sequence[ModelScores]) -> list[str]:
    hidden = other_images(shown.dataset, shown.images)
    notes = list(shown.notes)
    notes += [f"image columns that are not shown: {', '.join(hidden)}"] if hidden else []
    notes += [
        f"{model.truncated:,} texts are too long for the text tower of {model.name} and are truncated for it"
        for model in models
        if model.truncated
    ]
    return notes
