"""`hfcomp gallery`: rows of a data set as one page to look at and to mark, and the set without the dropped rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from hfcomp.cli.options import add_fields, add_output, command_parser
from hfcomp.cli.places import check_datasets

USAGE = "DATASET [--models A B], or DATASET --apply marks.json --output DIR"
SUMMARY = "pairs side by side as one HTML page, with scores, filters and marks; and the set without dropped rows"


def main(arguments: Sequence[str]) -> None:
    """Writes the page, or the data set without the rows that were dropped in it.

    Raises:
        ValueError: for options that do not fit, a data set without images or captions, or marks of another one.
        OSError: for a file that cannot be read or written.
    """
    given = vars(parser().parse_args(arguments))
    name, output = given.pop("dataset"), given.pop("output", None)
    check_datasets([name])
    if "apply" in given:
        _apply(name, given.pop("apply"), output, given)
        return
    if "allow_outside_files" in given:
        raise ValueError(
            "--allow_outside_files only applies to --apply, which copies images into a new data set. Remove it."
        )
    from hfcomp.analysis.gallery.options import GalleryOptions
    from hfcomp.analysis.gallery.page import PAGE, write_gallery

    found = write_gallery(name, output or Path(PAGE), GalleryOptions(**given), progress=sys.stderr.isatty())
    for note in found.notes:
        print(f"note: {note}")
    print(f"page: {found.path} ({found.rows:,} rows, {found.path.stat().st_size / 1e6:.1f} MB)")


def _apply(name: str, marks: Path, output: Path | None, given: dict[str, Any]) -> None:
    from hfcomp.analysis.gallery.marks import apply_marks
    from hfcomp.analysis.gallery.options import DataOptions

    if output is None:
        raise ValueError("--apply writes a new data set: pass --output DIR, its folder.")
    allow = given.pop("allow_outside_files", False)
    known = {field.name for field in fields(DataOptions)}
    if others := [key for key in given if key not in known]:
        raise ValueError(f"--{others[0]} only applies to the page, not to --apply. Remove it.")
    done = apply_marks(name, marks, output, given, allow_outside_files=allow, progress=sys.stderr.isatty())
    print(f"{done.read:,} rows read, {done.dropped:,} dropped, {done.written:,} written to {done.folder}")
    print(f"{done.kept:,} of these were marked to be kept, {done.written - done.kept:,} had no mark")
    for reason, number in done.set_aside.items():
        print(f"{number:,} more rows were left out: {reason}")


def parser() -> argparse.ArgumentParser:
    """The command line; what is not given is left to the fields of `GalleryOptions`."""
    from hfcomp.analysis.gallery.options import GalleryOptions

    found = command_parser(
        "gallery",
        "Writes rows of a data set as one HTML page, which needs no network: images and captions, "
        "negatives with their changed words, masks, scores of models. Rows are marked in the page to be kept or "
        "dropped; --apply writes the data set without those that were dropped.",
        sparse=True,
    )
    found.add_argument("dataset", metavar="DATASET", help="folder, file or Hub id, or sandbox for the built-in world")
    add = found.add_argument
    words = "page (default: gallery.html); with --apply the new set's folder"
    add_output(found, "output", metavar="PATH", help=words)
    add("--apply", type=Path, metavar="FILE", help="marks.json that the page saved")
    words = "with --apply: copy image files from outside the set's folder too"
    add("--allow_outside_files", action="store_true", help=words)
    add_fields(found, GalleryOptions, listed=("models",))
    return found
