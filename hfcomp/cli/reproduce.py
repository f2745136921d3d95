"""`hfcomp reproduce`: whether this library finds the numbers that are published, for a few checkpoints."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hfcomp.cli.options import add_device, add_output, command_parser, names_of

USAGE = "[MODEL ...] [--benchmarks A,B] [--page FILE]"
SUMMARY = "published numbers beside measured ones, of three checkpoints on five benchmarks; needs a connection"
# those with the most published numbers; what is gated or takes tens of GB is left out
MODELS = ("openai/clip-vit-base-patch32", "openai/clip-vit-base-patch16", "google/siglip-base-patch16-224")
BENCHMARKS = ("sugarcrepe", "sugarcrepe_pp", "flickr30k", "coco_retrieval", "cifar100")
PAGE = "reproduced.md"


def main(arguments: Sequence[str]) -> None:
    """Scores the models, prints the tables, and writes them and the page.

    Without a connection it says so and ends with status 0, unless models and data are in local folders. Ends with
    status 1 if a benchmark failed for another reason than missing data.

    Raises:
        ValueError: for models or data that do not fit, or earlier results without `--overwrite`.
        OSError: for a file that cannot be read or written.
    """
    options = parser().parse_args(arguments)
    models = options.models or list(MODELS)
    is_local = options.data_dir is not None and all(map(_is_folder, models))
    if not is_local and (reason := _why_unreached()):  # before the libraries that scoring needs
        print(f"reproduce: needs a connection to the Hub. {reason}. Nothing was run or written.")
        return

    from hfcomp.evaluation.evaluate import evaluate
    from hfcomp.evaluation.evaluation_results import FILES, evaluation_report, print_evaluation
    from hfcomp.evaluation.published.comparison import reproduction_report
    from hfcomp.reporting.saving import render_markdown
    from hfcomp.writing import check_free_file, check_free_folder, write_text

    page = options.page or options.output_dir / PAGE
    check_free_folder(options.output_dir, options.overwrite, written=FILES)
    check_free_file(page, options.overwrite, option="page" if options.page else "output_dir")
    results = evaluate(
        models,
        benchmarks=options.benchmarks,
        data_dir=options.data_dir,
        batch_size=options.batch_size,
        device=options.device,
        published=True,
        log=print,
    )
    command = shlex.join(["hfcomp", "reproduce", *arguments])
    results = replace(results, config={"command": command, **results.config})
    results.save(options.output_dir)
    write_text(page, render_markdown(reproduction_report(evaluation_report(results, brief=False))))
    print_evaluation(results, options.output_dir)
    print(f"page: {page}")
    if results.failed:
        raise SystemExit(1)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = command_parser(
        "reproduce", "Scores checkpoints and shows published numbers beside the measured ones, with a page of them."
    )
    add = found.add_argument
    add("models", nargs="*", metavar="MODEL", help=f"Hub id, folder or name=PLACE (default: {', '.join(MODELS)})")
    known = f"default: {','.join(BENCHMARKS)}"
    add("--benchmarks", type=names_of, default=list(BENCHMARKS), metavar="A,B", help=known)
    add("--data_dir", type=Path, metavar="DIR", help="folder with a sub-folder for each benchmark's data")
    add_output(found, default=Path("runs/reproduced"), help="default: runs/reproduced")
    add("--page", type=Path, metavar="FILE", help=f"where the page goes (default: {PAGE} in the output folder)")
    add("--overwrite", action="store_true", help="replace an earlier page and earlier results")
    add("--batch_size", type=int, default=128, help="images or texts at a time (default: 128)")
    add_device(found)
    return found


def _is_folder(model: str) -> bool:
    """Whether a model is a folder, with a name before it or without."""
    return Path(model).is_dir() or Path(model.partition("=")[2] or model).is_dir()


def _why_unreached() -> str:
    """Why the Hub cannot be used, or an empty text."""
    from hfcomp.cli.environment import OK, find_hub_access

    access = next(find_hub_access())
    return "" if access.state == OK else f"{access.name}: {access.found}"
