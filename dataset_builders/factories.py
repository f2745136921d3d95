"""What the three programs `factory.py` share: each builds a set from real photographs and trains on it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dataset_builders.serving import check_transformers_serve
from hfcomp.factory.command import quiet_logs
from hfcomp.options import add_options
from hfcomp.reporting.report import Report
from hfcomp.reporting.terminal import render_terminal
from hfcomp.writing import replacing_folder

LLM = "llm"
"""The step that asks a random language model behind `transformers serve`."""
ASKED = 16  # with three attempts each fewer than the 50 answers after which a build without a usable one stops
"""Rows that it is asked about."""
MOST_KEPT = 0.1
"""Of its answers, the share that validation may let pass."""
RECIPES = Path(__file__).resolve().parents[1] / "recipes"

Written = Iterator[tuple[Path, str]]
"""What a step wrote, and what that is."""
Steps = Mapping[str, Callable[[Any], Written]]


def real_data() -> Path:
    """The folder of photographs, captions and ratings.

    Raises:
        ValueError: where `HFCOMP_REAL_DATA` does not name one.
    """
    place = os.environ.get("HFCOMP_REAL_DATA")
    if not place or not Path(place).is_dir():
        raise ValueError("HFCOMP_REAL_DATA is not set; it names a folder with COCO photographs, captions and ratings.")
    return Path(place)


def run_steps(
    arguments: Sequence[str],
    kind: type,
    steps: Steps,
    of: Callable[[Any, dict[str, Any]], Any],
    description: str,
    without_caveat: Sequence[str] = (),
    without_data: Sequence[str] = (),
) -> None:
    """Runs what `--only` names, by default everything, and lists what was written.

    Args:
        arguments: of the command line.
        kind: whose fields are the other options.
        steps: by name, in their order.
        of: from the folder of the data, None without, and the options that are given to what the steps share, which
            has a `caveat`.
        description: for the help.
        without_caveat: steps whose results are of no model.
        without_data: steps that need no folder of data.

    Raises:
        ValueError: for options that do not fit, or data that is missing.
    """
    given = vars(_parser(kind, steps, description).parse_args(arguments))
    only = given.pop("only", list(steps))
    if LLM in only:
        check_transformers_serve()  # before minutes of work
    shared = of(None if {*only} <= {*without_data} else real_data(), given)
    with quiet_logs():
        written = {str(place): what for step in steps if step in only for place, what in steps[step](shared)}
    caveat = "" if {*only} <= {*without_caveat} else shared.caveat
    render_terminal(Report("Written", caveat, closing=written))


def random_model(folder: Path, name: str, write: Callable[[Path], object]) -> Path:
    """A model of random weights, written where it is missing."""
    place = folder / "random_models" / name
    if not place.is_dir():
        with replacing_folder(place) as part:
            write(part)
    return place


def train(recipe: str, config: str, values: Mapping[str, Any]) -> None:
    """Runs a recipe in a process of its own, as a user would."""
    words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    subprocess.run([sys.executable, RECIPES / recipe, "--config", config, *words], check=True)


def check_refused(kept: int, of: int, what: str, place: Path, most_kept: float = MOST_KEPT) -> str:
    """What to say of a random language model's answers, most of which have to be refused.

    Raises:
        ValueError: where validation lets a larger share pass than `most_kept`.
    """
    refused = f"{of - kept} of {of} {what} of a random language model were refused"
    if kept > most_kept * of:
        expected = "nearly all" if most_kept == MOST_KEPT else f"{1 - most_kept:.0%} or more"
        raise ValueError(f"{refused}; expected {expected}. Look into {place}: validation lets too much pass.")
    return refused


def say(line: str) -> None:
    """Prints a line at once."""
    print(line, flush=True)


def _parser(kind: type, steps: Steps, description: str) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=description, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    found.add_argument("--only", choices=list(steps), nargs="+", help="by default all")
    add_options(found, kind)
    for action in found._actions:
        action.required = False
    return found
