"""`hfcomp gallery`: rows of a dataset as one page to look at and to mark, and the set without the dropped rows."""

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
    """Set, marks and output."""

    dataset: Annotated[
        str,
        Spelling("DATASET", positional=True),
        "Folder, file or Hub id, or sandbox for the built-in world.",
    ]
    output: Annotated[
        Path | None, Spelling("PATH"), "Page (default: gallery.html); with --apply the new set's folder."
    ] = None
    apply: Annotated[Path | None, Spelling("FILE"), "File marks.json that the page saved."] = None
    allow_outside_files: Annotated[bool, "With --apply: copy image files from outside the set's folder too."] = False


def main(arguments: Sequence[str]) -> None:
    """Writes the page, or the dataset without the rows that were dropped in it."""
    given = vars(parser().parse_args(arguments))
    places = make_options(PlaceOptions, given)
    check_datasets([places.dataset])
    if places.apply:
        _apply(places, given)
        return
    if places.allow_outside_files:
        raise ValueError(
            "--allow_outside_files only applies to --apply, which copies images into a new dataset. Remove it."
        )
    from hfcomp.analysis.gallery.page import PAGE, write_gallery

    options = make_options(GalleryOptions, given)
    found = write_gallery(places.dataset, places.output or Path(PAGE), options, progress=sys.stderr.isatty())
    for note in found.notes:
        print(f"note: {note}")
    print(f"page: {found.path} ({found.rows:,} rows, {found.path.stat().st_size / 1e6:.1f} MB)")


def _apply(places: PlaceOptions, given: dict[str, Any]) -> None:
    from hfcomp.analysis.gallery.marks import apply_marks

    if places.output is None:
        raise ValueError("--apply writes a new dataset: pass --output DIR, its folder.")
    # Only options that decide how the set is read apply here.
    if others := [name for name in given if name not in declared_options(DataOptions)]:
        raise ValueError(f"--{others[0]} only applies to the page, not to --apply. Remove it.")
    how = {"allow_outside_files": places.allow_outside_files, "progress": sys.stderr.isatty()}
    done = apply_marks(places.dataset, places.apply, places.output, given, **how)
    print(f"{done.read:,} rows read, {done.dropped:,} dropped, {done.written:,} written to {done.folder}")
    print(f"{done.kept:,} of these were marked to be kept, {done.written - done.kept:,} had no mark")
    for reason, number in done.set_aside.items():
        print(f"{number:,} more rows were left out: {reason}")


def parser() -> argparse.ArgumentParser:
    return command_parser(
        "gallery",
        "Writes rows of a dataset as one HTML page, which needs no network: images and captions, "
        "negatives with their changed words, masks, scores of models. Rows are marked in the page to be kept or "
        "dropped; --apply writes the dataset without those that were dropped.",
        PlaceOptions,
        GalleryOptions,
    )
