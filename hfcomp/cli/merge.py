"""`hfcomp merge`: the weights between a base and a model that was tuned from it, at a point given or chosen."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from hfcomp.cli.options import add_device, add_url_options, names_of
from hfcomp.cli.places import check_models

USAGE = "BASE TUNED --alpha X|--sweep --output_dir DIR"
SUMMARY = "a model between a base and a tuned one (WiSE-FT): at a point given, or the best by a rule"


def main(arguments: Sequence[str]) -> None:
    """Writes the point that is asked for, or with `--sweep` scores 11 points and writes the chosen one.

    Raises:
        ValueError: for options that do not fit, models that do not fit each other, or an output folder in use.
        OSError: for a file that cannot be read or written.
    """
    known = parser()
    given = vars(known.parse_args(arguments))
    base, tuned, folder, alpha, sweep, overwrite = (
        given.pop(name) for name in ("base", "tuned", "output_dir", "alpha", "sweep", "overwrite")
    )
    changed = [name for name, value in given.items() if value != known.get_default(name)]
    if changed and not sweep:
        raise ValueError(f"--{changed[0]} only applies to --sweep. Remove it, or use --sweep instead of --alpha.")
    check_models((base, tuned))
    from hfcomp.evaluation.spec import parse_folders
    from hfcomp.merging.merge import MODEL_FOLDER, RECORD_FILE, WRITTEN, SweepOptions, merge, merge_by_sweep
    from hfcomp.writing import check_free_folder, locked

    if not sweep:
        check_free_folder(folder, overwrite, written=[RECORD_FILE], whole=True)
        with locked(folder):
            merge(base, tuned, alpha, folder)
        print(f"model: {folder} (alpha {alpha:g})")
        return
    given["data"] = parse_folders(given["data"], option="data")
    check_free_folder(folder, overwrite, written=WRITTEN)
    check_free_folder(folder / MODEL_FOLDER, overwrite, written=[RECORD_FILE], whole=True)
    with locked(folder):
        options = SweepOptions(**given)
        merge_by_sweep(base, tuned, options, folder, command=shlex.join(["hfcomp", "merge", *arguments]))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from hfcomp.merging.choice import RULES, TOLERANCE

    found = argparse.ArgumentParser(
        prog="hfcomp merge",
        description="Interpolates the weights of a base and of a model that was tuned from it (WiSE-FT).",
        allow_abbrev=False,
    )
    found.add_argument("base", metavar="BASE", help="Hub id or folder")
    found.add_argument("tuned", metavar="TUNED", help="the same of a model, or of an adapter (LoRA, DoRA) of BASE")
    point = found.add_mutually_exclusive_group(required=True)
    point.add_argument("--alpha", type=float, metavar="X", help="0 is BASE, 1 is TUNED")
    point.add_argument("--sweep", action="store_true", help="score 11 points, choose one by a rule")
    found.add_argument(
        "--output_dir",
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="output folder, of the model or of the sweep",
    )
    found.add_argument("--overwrite", action="store_true", help="replace what an earlier merge wrote there")
    sweep = found.add_argument_group("of a sweep")
    add = sweep.add_argument
    named = "of composition and general, at least one each, as hfcomp evaluate names them"
    add("--benchmarks", type=names_of, default=[], metavar="A,B", help=named)
    strictest = "default: the strictest metric of the first benchmark of composition"
    add("--composition", metavar="MEASURE", help=f"'benchmark: metric' to gain ({strictest})")
    add("--general", metavar="MEASURE", help="likewise, not to lose (default: the mean of all general lines)")
    ways = "tolerance: the best composition that keeps the general score; mean: the best mean of both"
    add("--rule", choices=RULES, default=RULES[0], help=f"{ways}; never a dominated point (default: {RULES[0]})")
    lost = f"how much of the general score may be lost (default: {TOLERANCE:g}, one percentage point)"
    add("--tolerance", type=float, default=TOLERANCE, metavar="X", help=lost)
    add("--data_dir", type=Path, metavar="DIR", help="folder with a sub-folder for each benchmark's data")
    add("--data", action="append", default=[], metavar="NAME=DIR", help="folder of one benchmark's data")
    add_url_options(sweep)
    add("--batch_size", type=int, default=128, help="images or texts at a time (default: 128)")
    add_device(sweep)
    return found
