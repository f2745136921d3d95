"""`hfcomp gallery`: shows dataset rows on a page for marking, and writes the dataset without those marked to drop."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from hfcomp.analysis.gallery.options import DataOptions, GalleryOptions
from hfcomp.cli.places import check_datasets
from hfcomp.options import Options, Spelling, command_parser, declared_options, make_options


@dataclass(kw_only=True)
class PlaceOptions(Options):
    """Dataset, marks and output."""

    dataset: Annotated[
        str, Spelling("DATASET", positional=True), "Folder, file, Hub id or 'sandbox' (the built-in dataset)."
    ]
    output: Annotated[
        Path | None,
        Spelling("PATH"),
        "Page to write (default: gallery.html), or the new dataset's folder with --apply.",
    ] = None
    apply: Annotated[
        Path | None,
        Spelling("FILE"),
        "File marks.json that the page saved; write the dataset without the rows marked to drop.",
    ] = None
    allow_outside_files: Annotated[bool, "With --apply, also copy image files from outside the dataset's folder."] = (
        False
    )


def main(arguments: Sequence[str]) -> None:
    """Writes the page, or with `--apply` the dataset without the rows marked as dropped."""
    given = vars(parser().parse_args(arguments))
    places = make_options(PlaceOptions, given)
    check_datasets([places.dataset])
    if places.apply:
        _apply(places, given)
        return
    if places.allow_outside_files:
        raise ValueError(
            "--allow_outside_files has no effect without --apply, which copies images into a new dataset. Remove it."
        )
    from hfcomp.analysis.gallery.page import PAGE, write_gallery

    options = make_options(GalleryOptions, given)
    gallery = write_gallery(places.dataset, places.output or Path(PAGE), options, progress=sys.stderr.isatty())
    for note in gallery.notes:
        print(f"note: {note}")
    print(f"page: {gallery.path} ({gallery.rows:,} rows, {gallery.path.stat().st_size / 1e6:.1f} MB)")


def _apply(places: PlaceOptions, arguments: dict[str, Any]) -> None:
    from hfcomp.analysis.gallery.marks import apply_marks
    from hfcomp.reporting.format import count_text

    if places.output is None:
        raise ValueError("--apply writes a new dataset and needs a folder for it: pass --output DIR.")
    # Only options that decide how the dataset is read apply here.
    if others := [name for name in arguments if name not in declared_options(DataOptions)]:
        raise ValueError(f"--{others[0]} applies only to the page and has no effect with --apply. Remove it.")
    settings = {"allow_outside_files": places.allow_outside_files, "progress": sys.stderr.isatty()}
    result = apply_marks(places.dataset, places.apply, places.output, arguments, **settings)
    counts = f"{count_text(result.read, 'row')} read, {result.dropped:,} dropped, {result.written:,} written"
    print(f"{counts} to {result.folder}")
    print(f"{result.kept:,} of the written rows were marked as kept, {result.written - result.kept:,} had no mark")
    for reason, number in result.set_aside.items():
        print(f"{number:,} more rows were left out: {reason}")


def parser() -> argparse.ArgumentParser:
    return command_parser(
        "gallery",
        "Write dataset rows as one HTML page that works offline: images and captions, negatives with the "
        "changed words highlighted, masks, model scores. On the page, rows can be marked to keep or to drop; "
        "--apply writes the dataset without the dropped rows.",
        PlaceOptions,
        GalleryOptions,
    )
