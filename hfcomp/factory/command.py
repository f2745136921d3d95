"""`hfcomp build`: datasets made on this machine, shard by shard."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hfcomp.cli.options import command_parser
from hfcomp.cli.places import check_datasets, check_folders
from hfcomp.factory.builder import builders, find_builder
from hfcomp.factory.options import BuildOptions
from hfcomp.factory.pixel_options import PixelOptions
from hfcomp.factory.publishing import PublishOptions, check_push, push_set
from hfcomp.options import Options, Spelling, make_options
from hfcomp.reading import nearest

if TYPE_CHECKING:
    from hfcomp.factory.build import BuiltSet

QUIET = {
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""What the libraries of a process read once, when they are imported."""
KEPT = "Finished shards are kept"
RESUME = f"{KEPT}: the same command resumes."
RESUME_PIXELS = "Images that are in the store are kept: the same command resumes."


@dataclass(kw_only=True)
class VerifyOptions(Options):
    """Folder."""

    folder: Annotated[Path, Spelling("DIR", positional=True), "Folder of the built set."]


def main(arguments: Sequence[str]) -> None:
    """Builds a set and pushes it where `--push_to_hub` says, or verifies one: see `hfcomp.factory.build`."""
    kinds = [*builders(), PixelOptions.what, "verify"]
    if (word := arguments[0] if arguments else "-") not in kinds and not word.startswith("-"):
        raise ValueError(f"WHAT: found {word!r}, expected one of {', '.join(kinds)}.{nearest(word, kinds)}")
    given = vars(parser().parse_args(arguments))
    what = given.pop("what")
    if what == "verify":
        return _verify(make_options(VerifyOptions, given).folder)
    check_datasets([given["source"]])
    if what == PixelOptions.what:
        return _build_pixels(make_options(PixelOptions, given))
    kind = find_builder(what).options
    push = make_options(PublishOptions, given).target(kind, given.get("until"))
    options = make_options(kind, given)
    # Checked before the build, which may take days.
    check_push(push)
    push_set(build_and_report(options).folder, push)


def build_and_report(options: BuildOptions) -> BuiltSet:
    """Builds a set and prints what was made and left out.

    Raises:
        ValueError: as `hfcomp.factory.build.build_set`, or for a set without rows.
        SystemExit: where the build was interrupted, or a stage failed, after its traceback.
    """
    from hfcomp.data.built_sets.files import SET_ASIDE_FILE
    from hfcomp.factory.build import build_set
    from hfcomp.factory.runner import StageError
    from hfcomp.factory.shards import DamagedSource
    from hfcomp.reporting.terminal import render_terminal

    try:
        with quiet_logs():
            built = build_set(options, progress=sys.stderr.isatty())
    except StageError as error:
        # If a server is down, a disk is full or the build itself raised the error, its message is enough.
        if not isinstance(error, DamagedSource) and not isinstance(error.__cause__, OSError | None):
            traceback.print_exception(error)
        raise SystemExit(f"error: {error}" if KEPT in str(error) else f"error: {error}\n{RESUME}") from None
    except KeyboardInterrupt:
        print(f"interrupted. {RESUME}", file=sys.stderr)
        raise SystemExit(130) from None
    render_terminal(built.report())
    if built.empty:
        files = ", ".join(str(folder / SET_ASIDE_FILE) for folder in built.empty)
        raise ValueError(f"no row is left; the reason for each is in {files}.")
    return built


def _verify(folder: Path) -> None:
    check_folders([folder])
    from hfcomp.data.built_sets.verification import verify_set
    from hfcomp.data.pixels.store import is_store
    from hfcomp.factory.pixels import verify_pixels

    (verify_pixels if is_store(folder) else verify_set)(folder, log=lambda line: print(line, flush=True))


def _build_pixels(options: PixelOptions) -> None:
    from hfcomp.factory.pixels import build_pixels
    from hfcomp.reporting.terminal import render_terminal

    try:
        with quiet_logs():
            built = build_pixels(options, progress=sys.stderr.isatty())
    except KeyboardInterrupt:
        print(f"interrupted. {RESUME_PIXELS}", file=sys.stderr)
        raise SystemExit(130) from None
    render_terminal(built.report())


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Keeps bars of datasets, and bars and warnings of transformers, from a standard error that is no terminal.

    Those of processes that are started in it too.
    """
    import datasets

    from hfcomp.modeling.weight_checks import silence_library

    if sys.stderr.isatty():
        yield
        return
    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    # Processes that are started here read these variables when they import the libraries.
    added = {name: value for name, value in QUIET.items() if name not in os.environ}
    os.environ.update(added)
    try:
        with silence_library():
            yield
    finally:
        for name in added:
            del os.environ[name]
        if shown:
            datasets.enable_progress_bars()


def parser() -> argparse.ArgumentParser:
    found = command_parser("build", "Builds datasets for training.")
    kinds = found.add_subparsers(dest="what", required=True, metavar="WHAT")
    for kind in [*(builder.options for builder in builders().values()), PixelOptions]:
        title = (inspect.getdoc(kind) or "").partition("\n")[0]
        about = f"{title} {RESUME_PIXELS if kind is PixelOptions else RESUME}"
        make = partial(kinds.add_parser, kind.what, help=title.rstrip("."))
        publishing = () if kind is PixelOptions else (PublishOptions,)
        command_parser(f"build {kind.what}", about, kind, *publishing, make=make)
    words = "check every file of a built set, or store of pixels, against its manifest"
    make = partial(kinds.add_parser, "verify", help=words)
    command_parser("build verify", f"{words}; 1 at the first damaged", VerifyOptions, make=make)
    return found
