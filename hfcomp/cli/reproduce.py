"""`hfcomp reproduce`: checks whether this library reproduces the published numbers of a few checkpoints."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from hfcomp.options import BatchSize, Device, Options, Spelling, command_parser, make_options

# The models and benchmarks with the most published numbers, without those that are gated or take tens of GB.
MODELS = ("openai/clip-vit-base-patch32", "openai/clip-vit-base-patch16", "google/siglip-base-patch16-224")
BENCHMARKS = ("sugarcrepe", "sugarcrepe_pp", "flickr30k", "coco_retrieval", "cifar100")
PAGE = "reproduced.md"


@dataclass(kw_only=True)
class ReproduceOptions(Options):
    """Models, benchmarks and output."""

    models: Annotated[
        tuple[str, ...],
        Spelling("MODEL", positional=True),
        f"Hub id, folder or name=PLACE (default: {', '.join(MODELS)}).",
    ] = ()
    benchmarks: Annotated[tuple[str, ...], "Benchmarks by name."] = BENCHMARKS
    data_dir: Annotated[Path | None, "Folder with one subfolder of data per benchmark."] = None
    output_dir: Annotated[Path, "Output folder."] = Path("runs/reproduced")
    page: Annotated[Path | None, Spelling("FILE"), f"Path of the page (default: {PAGE} in the output folder)."] = None
    overwrite: Annotated[bool, "Replace an existing page and existing results."] = False
    batch_size: BatchSize = 128
    device: Device = None


def main(arguments: Sequence[str]) -> None:
    """Scores the models, prints the tables, and writes the tables and the page.

    Without a connection, says so and exits with status 0, unless models and data are in local folders. Exits with
    status 1 if a benchmark failed for a reason other than missing data.
    """
    options = make_options(ReproduceOptions, vars(parser().parse_args(arguments)))
    models = options.models or list(MODELS)
    is_local = options.data_dir is not None and all(map(_is_folder, models))
    if not is_local and (reason := _connection_problem()):  # before importing the libraries that scoring needs
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
    description = "Score checkpoints, show published numbers next to the measured ones, and write a page of both."
    return command_parser("reproduce", description, ReproduceOptions)


def _is_folder(model: str) -> bool:
    """Whether a model is a folder, with or without a name in front."""
    return Path(model).is_dir() or Path(model.partition("=")[2] or model).is_dir()


def _connection_problem() -> str:
    """Returns why the Hub cannot be reached, or an empty text."""
    from hfcomp.cli.environment import OK, find_hub_access

    access = next(find_hub_access())
    return "" if access.state == OK else f"{access.name}: {access.found}"
