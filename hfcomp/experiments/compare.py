"""`hfcomp compare`: models side by side from stored outcomes alone, item by item; no model is loaded."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hfcomp.evaluation.compare import align
from hfcomp.evaluation.results import package_versions
from hfcomp.evaluation.statistics.summary import TIE_RULES
from hfcomp.evaluation.stored import Stored, listed, read_stored
from hfcomp.experiments.evaluation_report import EvaluationReport, evaluation_report, print_evaluation, write_report
from hfcomp.writing import locked


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command.

    Args:
        arguments: by default those of the process.

    Raises:
        SystemExit: with what is wrong and how to fix it.
    """
    options = _parser().parse_args(sys.argv[2:] if arguments is None else list(arguments))
    wanted = [name for name in (options.benchmarks or "").split(",") if name]
    try:
        stored = read_stored(options.models)
        reference = _reference(options.reference, stored)
        tie = options.tie or _stored_rule(stored)
        report = compare(stored, reference=reference, tie=tie, benchmarks=wanted, common=options.common)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error
    folder = Path(options.output_dir) if options.output_dir else None
    if folder is not None:
        with locked(folder):
            write_report(folder, report)
    print_evaluation(report, folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hfcomp compare",
        description="Compares models item by item, from what hfcomp evaluate or a recipe stored.",
        allow_abbrev=False,
    )
    parser.add_argument("models", nargs="+", metavar="FOLDER[:MODEL]", help="all models of a folder, or one of them")
    parser.add_argument("--reference", metavar="MODEL", help="that the others are compared to (default: the first)")
    parser.add_argument("--tie", choices=list(TIE_RULES), help="what a tie counts (default: what it did in them)")
    parser.add_argument("--benchmarks", metavar="A,B", help="names or titles (default: all that every model has)")
    parser.add_argument("--common", action="store_true", help="compare on the items that all have; count the others")
    parser.add_argument("--output_dir", metavar="DIR", help="write report.md and results.json there")
    return parser


def _reference(wanted: str | None, stored: Sequence[Stored]) -> str:
    """The name of the model that the others are compared to: asked for by name, or as on the command line."""
    if wanted is None:
        return stored[0].name
    for key in ("name", "argument", "model"):
        chosen = [one.name for one in stored if getattr(one, key) == wanted]
        if len(chosen) == 1:
            return chosen[0]
    raise ValueError(
        f"--reference: {wanted!r} fits none, or several, of {listed([one.name for one in stored])}. Name one."
    )


def _stored_rule(stored: Sequence[Stored]) -> str:
    """What a tie counts in the folders, where it is the same in all.

    Raises:
        ValueError: where it is not.
    """
    rules = {one.folder: one.results.get("tie_rule") or "wrong" for one in stored}
    if len(set(rules.values())) > 1:
        said = ", ".join(f"{rule} in {folder}" for folder, rule in rules.items())
        raise ValueError(f"ties count {said}. Choose with --tie {' or '.join(TIE_RULES)}.")
    return next(iter(rules.values()))


def compare(
    stored: Sequence[Stored],
    *,
    reference: str,
    tie: str = "wrong",
    benchmarks: Sequence[str] = (),
    common: bool = False,
) -> EvaluationReport:
    """The report of `align`, with differences to a model.

    Raises:
        ValueError: as `align`.
    """
    found = align(stored, benchmarks=benchmarks, common=common)
    return evaluation_report(
        found.outcomes,
        models=found.models,
        averages=found.averages,
        reference=reference,
        tie=tie,
        benchmarks=found.benchmarks,
        notes=found.notes,
        versions=package_versions(),
    )
