"""`hfcomp build`: data sets made on this machine, shard by shard."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.cli.options import add_fields, command_parser
from hfcomp.cli.places import check_datasets, check_folders

if TYPE_CHECKING:
    from hfcomp.factory.build import BuiltSet
    from hfcomp.factory.options import BuildOptions
    from hfcomp.factory.pixel_options import PixelOptions

USAGE = (
    "negatives|concepts|neighbours|concretebatch|magic|inpaintcoco|pixels --source DATASET --output DIR, or verify DIR"
)
SUMMARY = "data sets with hard negatives, pairs, noun phrases, nearest images or a hierarchy; repeat it to resume"
QUIET = {
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
"""What the libraries of a process read once, when they are imported."""
KEPT = "Finished shards are kept"
RESUME = f"{KEPT}: the same command resumes."
RESUME_PIXELS = "Images that are in the store are kept: the same command resumes."


def main(arguments: Sequence[str]) -> None:
    """Builds a set and pushes it where `--push_to_hub` says, or verifies one: see `hfcomp.factory.build`.

    Raises:
        ValueError: for options that do not fit, a set without rows, or a repository that may not be written to.
        SystemExit: where the build was interrupted, or a stage failed, after its traceback.
    """
    from hfcomp.factory.builder import find_builder
    from hfcomp.factory.pixel_options import PixelOptions
    from hfcomp.factory.publishing import build_then_push, take_push

    given = vars(parser().parse_args(arguments))
    what = given.pop("what")
    if what == "verify":
        check_folders([given["folder"]])
        return _verify(given["folder"])
    check_datasets([given["source"]])
    if what == PixelOptions.what:
        return _build_pixels(PixelOptions(**given))
    kind = find_builder(what).options
    push = take_push(given, kind)
    options = kind(**given)
    build_then_push(lambda: build_and_report(options).folder, push)


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
        # of a server that is down or a disk that is full, and an error of the build's own, the message is enough
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

    from hfcomp.modeling.weight_checks import no_report

    if sys.stderr.isatty():
        yield
        return
    shown = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    added = {name: value for name, value in QUIET.items() if name not in os.environ}
    os.environ.update(added)
    try:
        with no_report():
            yield
    finally:
        for name in added:
            del os.environ[name]
        if shown:
            datasets.enable_progress_bars()


class _Parser(argparse.ArgumentParser):
    """Says at once which option is unknown, with the nearest one."""

    def parse_known_args(self, *args: Any, **kwargs: Any) -> tuple[Any, list[str]]:
        """As in argparse, but nothing unknown is left for the parser above, which has no options to compare with."""
        from hfcomp.reading import nearest

        found, unknown = super().parse_known_args(*args, **kwargs)
        if unknown:
            name = unknown[0].partition("=")[0]
            hint = nearest(name, self._option_string_actions) or f" `{self.prog} --help` lists the options."
            self.error(f"{name!r} is not an option.{hint}")
        return found, unknown


def parser() -> argparse.ArgumentParser:
    """The command line; what is not given is left to the fields of `hfcomp.factory.options`."""
    from hfcomp.factory.builder import builders
    from hfcomp.factory.pixel_options import PixelOptions
    from hfcomp.factory.publishing import PublishOptions

    found = command_parser("build", "Builds data sets for training.")
    kinds = found.add_subparsers(dest="what", required=True, metavar="WHAT", parser_class=_Parser)
    for builder in builders().values():
        one = kinds.add_parser(builder.options.what, **_about(builder.options))
        add_fields(one, builder.options)
        add_fields(one, PublishOptions)
    pixels = kinds.add_parser(PixelOptions.what, **_about(PixelOptions))
    add_fields(pixels, PixelOptions)
    words = "check every file of a built set, or store of pixels, against its manifest"
    verify = kinds.add_parser("verify", allow_abbrev=False, help=words, description=f"{words}; 1 at the first damaged")
    verify.add_argument("folder", type=Path, metavar="DIR", help="folder of the built set")
    return found


def _about(kind: type[BuildOptions] | type[PixelOptions]) -> dict[str, Any]:
    """How the parser of a kind of build is made."""
    title = (inspect.getdoc(kind) or "").partition("\n")[0]
    needed = " ".join(f"--{one.name} {one.name.upper()}" for one in fields(kind) if one.default is MISSING)
    resume = RESUME_PIXELS if kind.what == "pixels" else RESUME
    usage = f"hfcomp build {kind.what} {needed} [OPTIONS]"  # all of them would hide the error below it
    words = {"help": title.rstrip("."), "description": f"{title} {resume}", "usage": usage}
    return {"allow_abbrev": False, "argument_default": argparse.SUPPRESS, **words}
