"""`hfcomp evaluate`: scores models from the Hub or from folders side by side."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from hfcomp.cli.page import ReportPageOptions, Tie
from hfcomp.data.urls import DEFAULT_TIMEOUT
from hfcomp.evaluation.blind.encoders import BLIND
from hfcomp.evaluation.pairs.options import PairOptions
from hfcomp.evaluation.spec import SUITES
from hfcomp.options import (
    AllowUrls,
    BatchSize,
    Device,
    Options,
    Spelling,
    UrlTimeout,
    check_models,
    command_parser,
    make_options,
    named_models,
)
from hfcomp.remote_code import Revision, TrustRemoteCode
from hfcomp.store import DEFAULT_LIMIT, LIMIT_VARIABLE, cache_folder

LONGEST_NAME = 100


@dataclass(kw_only=True)
class EvaluateOptions(Options):
    """Models and benchmarks."""

    models: Annotated[
        tuple[str, ...], Spelling("MODEL", positional=True), "Hub id or folder, or name=ID; see docs/models.md."
    ] = ()
    revision: Revision = None
    trust_remote_code: TrustRemoteCode = False
    suite: Annotated[Literal[*SUITES, "all"] | None, "Run all benchmarks of this suite."] = None
    benchmarks: Annotated[
        tuple[str, ...], "Benchmark names (see --list), package.module:NAME, or your own file or folder."
    ] = ()
    column_names: Annotated[
        str, Spelling("OURS=YOURS"), "Column mapping for your own files, for example image=filepath,caption=title."
    ] = ""
    split: Annotated[str | None, "Split of your files, such as train[90%:] (default: test, or the only one)."] = None
    data_dir: Annotated[Path | None, "Folder with one subfolder of data per benchmark."] = None
    data: Annotated[tuple[str, ...], Spelling("NAME=DIR", repeated=True), "Folder with one benchmark's data."] = ()
    blind: Annotated[
        tuple[str, ...], f"Blind scorers to add as models: {', '.join(BLIND)}. Pass none to omit the blind rules."
    ] = ()
    blind_captions: Annotated[
        str | None,
        Spelling("FILE"),
        "Captions for the bigram rule: a file, folder or Hub id; coco downloads COCO's. Defaults to COCO's if they "
        "are on this machine.",
    ] = None
    scores: Annotated[
        tuple[str, ...], Spelling("NAME=FILE", repeated=True), "Scores file of another system, compared like a model."
    ] = ()
    reference: Annotated[str | None, Spelling("MODEL"), "Model to compare the others with (default: first)."] = None
    tie: Annotated[Tie, "How to count a tie."] = "wrong"
    published: Annotated[bool, "Show the models' published numbers next to the measured ones."] = False
    cache: Annotated[Path | None, f"Cache folder for embeddings (default: {cache_folder('embeddings')})."] = None
    no_cache: Annotated[bool, "Recompute all embeddings and do not cache them."] = False
    cache_limit: Annotated[
        str | None, Spelling("SIZE"), f"Cache size, such as 5GB (default: ${LIMIT_VARIABLE}, else {DEFAULT_LIMIT})."
    ] = None
    allow_urls: AllowUrls = False
    url_timeout: UrlTimeout = DEFAULT_TIMEOUT
    skip_damaged: Annotated[bool, "Leave out and count items with a damaged image, instead of failing."] = False
    batch_size: BatchSize = 128
    device: Device = None


@dataclass(kw_only=True)
class OutputOptions(ReportPageOptions):
    """Output."""

    output_dir: Annotated[Path | None, "Output folder (default: runs/evaluation-<models>)."] = None
    overwrite: Annotated[bool, "Replace existing results in the output folder."] = False
    write_pairs: Annotated[
        Path | None,
        Spelling("FILE"),
        "Write the pairs that another system must score to a .csv, .jsonl or .parquet file, and exit.",
    ] = None
    list: Annotated[bool, "List the benchmarks, or describe the ones you name in detail."] = False


def main(arguments: Sequence[str]) -> None:
    """Scores the models, then prints and writes the tables; `--list` imports none of the libraries for scoring.

    Exits with status 1 if a benchmark failed for a reason other than missing data, and with 130 if interrupted.
    """
    if "--list" in arguments:
        from hfcomp.cli.list_benchmarks import main as list_benchmarks

        return list_benchmarks(arguments)
    given = vars(parser().parse_intermixed_args(arguments))
    options, pairs, output = (make_options(kind, given) for kind in (EvaluateOptions, PairOptions, OutputOptions))
    check_models(options.models)
    from hfcomp.distributed import OtherProcessFailed  # imports torch, so wrong options are reported first

    try:
        failed = _evaluate({**vars(options), "pairs": pairs}, output, shlex.join(["hfcomp", "evaluate", *arguments]))
    except OtherProcessFailed as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        print("Interrupted. Finished embeddings are cached; re-run the command to resume.", file=sys.stderr)
        raise SystemExit(130) from None
    if failed:
        raise SystemExit(1)


def parser() -> argparse.ArgumentParser:
    description = "Score models from the Hub or from folders on benchmarks, side by side."
    return command_parser("evaluate", description, EvaluateOptions, PairOptions, OutputOptions)


def _evaluate(options: dict[str, Any], output: OutputOptions, command: str) -> bool:
    """Evaluates the models. Returns whether a benchmark failed for a reason other than missing data."""
    from hfcomp.data.known_names import parse_column_names
    from hfcomp.distributed import fail_together
    from hfcomp.evaluation.evaluate import PATIENCE, evaluate
    from hfcomp.evaluation.evaluation_results import FILES, print_evaluation, write_evaluation
    from hfcomp.evaluation.score_files import parse_score_files
    from hfcomp.evaluation.spec import parse_folders
    from hfcomp.experiments.session import open_session
    from hfcomp.writing import check_free_folder, locked

    options["column_names"] = parse_column_names(options["column_names"])
    options["cache"] = (options["cache"] or True) if not options.pop("no_cache") else False
    options |= {"data": parse_folders(options["data"], option="data"), "scores": parse_score_files(options["scores"])}
    if any(":" in name for name in options["benchmarks"]):
        sys.path.append(os.getcwd())  # a module in the working directory
    if output.write_pairs:
        return _write_pairs(output.write_pairs, output.overwrite, options)
    if options["models"] or not options["scores"]:
        options["models"] = named_models(options["models"])
    names = "-".join(re.sub(r"[^\w.-]+", "-", name) for name in (*options["models"], *options["scores"]))
    folder = output.output_dir or Path("runs") / f"evaluation-{names}"[:LONGEST_NAME]
    check_free_folder(folder, output.overwrite, written=FILES)
    on_cpu = (options["device"] or "").startswith("cpu")
    session = open_session({"use_cpu": on_cpu, "ddp_timeout": PATIENCE.total_seconds()})
    main_process = session.state.is_main_process
    with fail_together(), locked(folder) if main_process else nullcontext():  # a process that fails alone ends all
        results = evaluate(**options, log=session.state.print)
        if main_process:
            results = replace(results, config={"command": command, **results.config})
            print_evaluation(results, folder)
            write_evaluation(folder, results, page=output.page())
    session.close()
    return results.failed


def _write_pairs(path: Path, overwrite: bool, options: Mapping[str, Any]) -> bool:
    """Writes the pairs that the benchmarks need. Returns whether a benchmark could not be read."""
    from hfcomp.data.urls import UrlAccess, url_access
    from hfcomp.evaluation.evaluate import choose_benchmarks, load_benchmarks
    from hfcomp.evaluation.score_files import write_pairs
    from hfcomp.evaluation.spec import FAILED, data_folders
    from hfcomp.writing import check_free_file

    if options["models"] or options["scores"]:
        raise ValueError("--write_pairs only lists pairs and scores no model. Remove MODEL and --scores.")
    check_free_file(path, overwrite, option="write_pairs")
    chosen = choose_benchmarks(
        options["suite"], options["benchmarks"], options["column_names"], print, split=options["split"]
    )
    folders = data_folders(options["data"], options["data_dir"], option="data")
    with url_access(UrlAccess.from_settings(options["allow_urls"], options["url_timeout"])):
        evaluator = load_benchmarks(chosen, folders, print, skip_damaged=options["skip_damaged"])
        for skip in evaluator.skipped:
            print(f"{skip['benchmark']}: {skip['reason']} {skip['how_to_fix']}")
        write_pairs(path, evaluator.loaded, print)
    return any(skip["reason"].startswith(FAILED) for skip in evaluator.skipped)
