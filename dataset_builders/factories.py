"""Shared code of the three `factory.py` programs, which build datasets from real photographs and train on them."""

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
"""Step that queries a random language model behind `transformers serve`."""
LLM_ROWS = 16  # with three attempts each, fewer than the 50 answers after which a build without a usable one stops
"""Number of rows for this step."""
MOST_KEPT = 0.1
"""Maximum share of the model's answers that validation may accept."""
RECIPES = Path(__file__).resolve().parents[1] / "recipes"

Written = Iterator[tuple[Path, str]]
"""Output paths of a step with descriptions."""
Steps = Mapping[str, Callable[[Any], Written]]


def real_data() -> Path:
    """Returns the folder with photographs, captions and ratings.

    Raises:
        ValueError: If `HFCOMP_REAL_DATA` does not name a folder.
    """
    place = os.environ.get("HFCOMP_REAL_DATA")
    if not place or not Path(place).is_dir():
        raise ValueError(
            f"HFCOMP_REAL_DATA is not set to a folder with COCO photographs, captions and ratings: found {place!r}."
        )
    return Path(place)


def run_steps(
    arguments: Sequence[str],
    kind: type,
    steps: Steps,
    make_factory: Callable[[Any, dict[str, Any]], Any],
    description: str,
    without_caveat: Sequence[str] = (),
    without_data: Sequence[str] = (),
) -> None:
    """Runs the steps in `--only`, by default all, and lists the written files.

    Args:
        arguments: Command line arguments.
        kind: Class whose fields are the other options.
        steps: Steps by name, in order.
        make_factory: Makes the shared state of the steps, which has a `caveat`, from the data folder (None if not
            needed) and the given options.
        description: Description for the help.
        without_caveat: Steps whose results involve no model.
        without_data: Steps that need no data folder.

    Raises:
        ValueError: If options conflict, or data is missing.
    """
    given = vars(_parser(kind, steps, description).parse_args(arguments))
    only = given.pop("only", list(steps))
    if LLM in only:
        check_transformers_serve()  # fail before minutes of work
    shared = make_factory(None if {*only} <= {*without_data} else real_data(), given)
    with quiet_logs():
        written = {str(place): about for step in steps if step in only for place, about in steps[step](shared)}
    caveat = "" if {*only} <= {*without_caveat} else shared.caveat
    render_terminal(Report("Written", caveat, closing=written))


def random_model(folder: Path, name: str, write: Callable[[Path], object]) -> Path:
    """Returns the folder of a model with random weights; writes it if it is missing."""
    place = folder / "random_models" / name
    if not place.is_dir():
        with replacing_folder(place) as part:
            write(part)
    return place


def train(recipe: str, config: str, values: Mapping[str, Any]) -> None:
    """Runs a recipe in a separate process, as a user would."""
    words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    subprocess.run([sys.executable, RECIPES / recipe, "--config", config, *words], check=True)


def check_rejections(kept: int, total: int, name: str, place: Path, most_kept: float = MOST_KEPT) -> str:
    """Checks that most of a random language model's answers were rejected; returns a sentence about them.

    Raises:
        ValueError: If validation accepted a larger share than `most_kept`.
    """
    summary = f"{total - kept} of {total} {name} from a random language model were rejected"
    if kept > most_kept * total:
        expected = "nearly all" if most_kept == MOST_KEPT else f"{1 - most_kept:.0%} or more"
        raise ValueError(f"{summary}, expected {expected}. Validation accepts too much; check {place}.")
    return summary


def say(line: str) -> None:
    """Prints a line immediately."""
    print(line, flush=True)


def _parser(kind: type, steps: Steps, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("--only", choices=list(steps), nargs="+", help="Steps to run (default: all)")
    add_options(parser, kind)
    for action in parser._actions:
        action.required = False
    return parser
