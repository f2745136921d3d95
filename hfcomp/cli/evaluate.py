"""`hfcomp evaluate`: any models of the Hub or in folders, side by side."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from hfcomp.cli.options import (
    PAGE,
    add_device,
    add_output,
    add_page,
    add_tie,
    add_url_options,
    command_parser,
    names_of,
    page_options,
)
from hfcomp.evaluation.model_names import named_models
from hfcomp.reading import check_place

USAGE = "MODEL [MODEL ...] --suite compositional|general|all, or --benchmarks A,B"
SUMMARY = "any models of the Hub or in folders, side by side; --list names the benchmarks"
LONGEST_NAME = 100


def main(arguments: Sequence[str]) -> None:
    """Scores the models, prints the tables and writes them; `--list` needs no library that scoring needs.

    Ends with status 1 if a benchmark failed for another reason than missing data, with 130 if interrupted.
    """
    if "--list" in arguments:
        from hfcomp.cli.list_benchmarks import main as list_benchmarks

        return list_benchmarks(arguments)
    options = vars(parser().parse_intermixed_args(arguments))
    if options["models"] or not (options["scores"] or options["write_pairs"]):
        options["models"] = named_models(options["models"])
        for place in options["models"].values():
            check_place(place)
    from hfcomp.distributed import OtherProcessFailed  # with torch: a wrong option is reported before

    try:
        failed = _evaluate(options, shlex.join(["hfcomp", "evaluate", *arguments]))
    except OtherProcessFailed as error:
        raise SystemExit(f"error: {error}") from error
    except KeyboardInterrupt:
        print("interrupted; what was encoded is cached: the same command resumes there", file=sys.stderr)
        raise SystemExit(130) from None
    if failed:
        raise SystemExit(1)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from hfcomp.evaluation.blind.encoders import BLIND
    from hfcomp.evaluation.spec import SUITES
    from hfcomp.store import DEFAULT_LIMIT, LIMIT_VARIABLE, cache_folder

    found = command_parser("evaluate", "Scores models of the Hub or in folders on benchmarks, side by side.")
    add = found.add_argument
    models = "Hub id or folder, or name=ID, of a dual encoder, an adapter, an image-text-to-text model or a BLIP"
    add("models", nargs="*", metavar="MODEL", help=models)
    add("--suite", choices=[*SUITES, "all"], help="all benchmarks of a kind")
    named = "by name (see --list), package.module:NAME, or a file or folder of your own"
    add("--benchmarks", type=names_of, default=[], metavar="A,B", help=named)
    add("--column_names", metavar="OURS=YOURS", help="columns of your own files, as image=filepath,caption=title")
    own_split = "Split of your own files, for example train[90%%:] (default: test, or the only one)"
    add("--split", metavar="SPLIT", help=own_split)
    add("--data_dir", type=Path, metavar="DIR", help="folder with a sub-folder for each benchmark's data")
    add("--data", action="append", default=[], metavar="NAME=DIR", help="folder of one benchmark's data")
    words = f"blind scorers as further models: {', '.join(BLIND)}; none: leave the section of blind rules out"
    add("--blind", type=names_of, default=[], metavar="A,B", help=words)
    words = "captions of the bigram rule: a file, folder or Hub id; coco fetches COCO's (default: COCO's if here)"
    add("--blind_captions", metavar="FILE", help=words)
    add("--scores", action="append", default=[], metavar="NAME=FILE", help="scores of another system, as a model")
    pairs = "write the pairs that need such scores to a .csv, .jsonl or .parquet, and end"
    add("--write_pairs", type=Path, metavar="FILE", help=pairs)
    add("--reference", metavar="MODEL", help="what differences refer to; by default the first model")
    add_tie(found, "wrong", "wrong")
    add("--published", action="store_true", help="show published numbers of the models beside the measured ones")
    add_output(found, help="default: runs/evaluation-<models>")
    add_page(found)
    add("--overwrite", action="store_true", help="replace results that are in the output folder")
    place = cache_folder("embeddings")
    add("--cache", type=Path, default=True, metavar="DIR", help=f"of embeddings (default: {place})")
    add("--no_cache", dest="cache", action="store_false", help="encode everything anew and keep nothing")
    add("--cache_limit", metavar="SIZE", help=f"such as 5GB (default: ${LIMIT_VARIABLE}, else {DEFAULT_LIMIT})")
    add_url_options(found)
    words = "leave out items with a damaged image, and count them; otherwise such an image is an error"
    add("--skip_damaged", action="store_true", help=words)
    add("--batch_size", type=int, default=128, help="images or texts at a time (default: 128)")
    add_device(found)
    add("--list", action="store_true", help="list the benchmarks, or all that is known of some")
    return found


def _evaluate(options: dict[str, Any], command: str) -> bool:
    """Whether a benchmark failed for another reason than missing data."""
    from hfcomp.data.known_names import parse_column_names
    from hfcomp.distributed import fail_together
    from hfcomp.evaluation.evaluate import PATIENCE, evaluate
    from hfcomp.evaluation.evaluation_results import FILES, print_evaluation, write_evaluation
    from hfcomp.evaluation.spec import parse_folders
    from hfcomp.experiments.session import open_session
    from hfcomp.writing import check_free_folder, locked

    output_dir, overwrite, pairs, _ = (
        options.pop(name) for name in ("output_dir", "overwrite", "write_pairs", "list")
    )
    page = page_options(*map(options.pop, PAGE))
    options["column_names"] = parse_column_names(options["column_names"] or "")
    options |= {"data": parse_folders(options["data"], option="data"), "scores": _score_files(options["scores"])}
    if any(":" in name for name in options["benchmarks"]):
        sys.path.append(os.getcwd())  # a module beside the user
    if pairs:
        return _write_pairs(pairs, overwrite, options)
    names = "-".join(re.sub(r"[^\w.-]+", "-", name) for name in (*options["models"], *options["scores"]))
    folder = output_dir or Path("runs") / f"evaluation-{names}"[:LONGEST_NAME]
    check_free_folder(folder, overwrite, written=FILES)
    on_cpu = (options["device"] or "").startswith("cpu")
    session = open_session({"use_cpu": on_cpu, "ddp_timeout": PATIENCE.total_seconds()})
    main_process = session.state.is_main_process
    with fail_together(), locked(folder) if main_process else nullcontext():  # a process that fails alone ends all
        results = evaluate(**options, log=session.state.print)
        if main_process:
            results = replace(results, config={"command": command, **results.config})
            print_evaluation(results, folder)
            write_evaluation(folder, results, page=page)
    session.close()
    return results.failed


def _score_files(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, _, path = text.partition("=")
        if not name or not os.path.isfile(path):
            raise ValueError(f"scores: found {text!r}, expected NAME=FILE with a file that exists.")
        if name in found:
            raise ValueError(f"scores: two files are called {name!r}. Give them different names.")
        found[name] = path
    return found


def _write_pairs(path: Path, overwrite: bool, options: Mapping[str, Any]) -> bool:
    """Writes the pairs that benchmarks need; whether one could not be read."""
    from hfcomp.data.urls import UrlAccess, url_access
    from hfcomp.evaluation.evaluate import choose_benchmarks, load_benchmarks
    from hfcomp.evaluation.score_files import write_pairs
    from hfcomp.evaluation.spec import FAILED, data_folders
    from hfcomp.writing import check_free_file

    if options["models"] or options["scores"]:
        raise ValueError("--write_pairs lists pairs and scores nothing: leave out MODEL and --scores.")
    check_free_file(path, overwrite, option="write_pairs")
    chosen = choose_benchmarks(
        options["suite"], options["benchmarks"], options["column_names"], print, split=options["split"]
    )
    folders = data_folders(options["data"], options["data_dir"], option="data")
    with url_access(UrlAccess.asked(options["allow_urls"], options["url_timeout"])):
        evaluator = load_benchmarks(chosen, folders, print, skip_damaged=options["skip_damaged"])
        for one in evaluator.skipped:
            print(f"{one['benchmark']}: {one['reason']} {one['how_to_fix']}")
        write_pairs(path, evaluator.loaded, print)
    return any(one["reason"].startswith(FAILED) for one in evaluator.skipped)
