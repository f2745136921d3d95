"""`hfcomp build`: builds datasets on this machine, shard by shard."""

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

from hfcomp.cli.places import check_datasets, check_folders
from hfcomp.factory.builder import builders, find_builder
from hfcomp.factory.options import BuildOptions
from hfcomp.factory.pixel_options import PixelOptions
from hfcomp.factory.publishing import PublishOptions, check_push, push_set
from hfcomp.old_names import KINDS
from hfcomp.options import Options, Spelling, command_parser, make_options
from hfcomp.reading import nearest

if TYPE_CHECKING:
    from hfcomp.factory.build import BuiltSet

QUIET = {
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""Variables that libraries read only once, when they are imported."""
KEPT = "Finished shards are kept"
RESUME = f"{KEPT}; repeat the command to resume."
RESUME_PIXELS = "Images in the store are kept; repeat the command to resume."


@dataclass(kw_only=True)
class VerifyOptions(Options):
    """Folder."""

    folder: Annotated[Path, Spelling("DIR", positional=True), "Folder of the built dataset or pixel store."]


def main(arguments: Sequence[str]) -> None:
    """Builds a dataset and pushes it to `--push_to_hub`, or verifies one; see `hfcomp.factory.build`."""
    kinds = [*builders(), PixelOptions.what, "verify"]
    if arguments:
        arguments = [KINDS.get(arguments[0], arguments[0]), *arguments[1:]]
    if (word := arguments[0] if arguments else "-") not in kinds and not word.startswith("-"):
        raise ValueError(f"KIND: found {word!r}, expected one of {', '.join(kinds)}.{nearest(word, kinds)}")
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
    """Builds a dataset and prints what was made and left out.

    Raises:
        ValueError: As in `hfcomp.factory.build.build_set`, or if no row is left.
        SystemExit: If the build is interrupted or a stage fails, after its traceback.
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
        # The message is enough if a server is down, a disk is full, or the build itself raised the error.
        if not isinstance(error, DamagedSource) and not isinstance(error.__cause__, OSError | None):
            traceback.print_exception(error)
        raise SystemExit(f"error: {error}" if KEPT in str(error) else f"error: {error}\n{RESUME}") from None
    except KeyboardInterrupt:
        print(f"interrupted. {RESUME}", file=sys.stderr)
        raise SystemExit(130) from None
    render_terminal(built.report())
    if built.empty:
        files = ", ".join(str(folder / SET_ASIDE_FILE) for folder in built.empty)
        raise ValueError(f"no row is left. The reasons, row by row, are in {files}.")
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
    """Hides progress bars of datasets, and bars and warnings of transformers, if standard error is not a terminal.

    This includes processes that are started inside the context.
    """
    import datasets

    from hfcomp.modeling.weight_checks import silence_library

    if sys.stderr.isatty():
        yield
        return
    had_bars = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    # Processes started here read these variables when they import the libraries.
    added = {name: value for name, value in QUIET.items() if name not in os.environ}
    os.environ.update(added)
    try:
        with silence_library():
            yield
    finally:
        for name in added:
            del os.environ[name]
        if had_bars:
            datasets.enable_progress_bars()


def parser() -> argparse.ArgumentParser:
    build_parser = command_parser(
        "build", "Build datasets for training and evaluation.", usage="hfcomp build KIND [OPTIONS]"
    )
    kinds = build_parser.add_subparsers(dest="what", required=True, metavar="KIND")
    for kind in [*(builder.options for builder in builders().values()), PixelOptions]:
        title = (inspect.getdoc(kind) or "").partition("\n")[0].rstrip(".")
        about = f"Build {title[:1].lower()}{title[1:]}. {RESUME_PIXELS if kind is PixelOptions else RESUME}"
        make = partial(kinds.add_parser, kind.what, help=title)
        publishing = () if kind is PixelOptions else (PublishOptions,)
        kind_parser = command_parser(f"build {kind.what}", about, kind, *publishing, make=make)
        for group in kind_parser._action_groups:
            if group.title == title:  # the description says it already
                group.title = "Options of this kind"
    words = "Check every file of a built dataset or pixel store against its manifest"
    make = partial(kinds.add_parser, "verify", help=words)
    command_parser("build verify", f"{words}; exits with status 1 at the first damaged file", VerifyOptions, make=make)
    return build_parser
