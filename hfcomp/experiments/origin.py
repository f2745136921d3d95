"""Where the values of a run come from, for its card: the recipe's comments and the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hfcomp.reporting.cards.methods import ON_COMMAND_LINE
from hfcomp.trainers.config import default_sources, field_default, objective_fields

# Fields are at the beginning of lines. YAML's own reader drops comments, and only comments are needed here.
_FIELD = re.compile(r"^(\w+):[^#\n]*(?:# ?(.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class Origin:
    """Where the values of a recipe come from."""

    recipe: str = ""  # its method and file, as in `slipform/sandbox`
    command: str = ""  # that runs it again, as it was given
    sources: Mapping[str, str] = field(default_factory=dict)  # by field its comment in the file, or the command line


def read_origin(path: Path, command: str, overridden: Collection[str]) -> Origin:
    sources = value_sources(path) | dict.fromkeys(overridden, ON_COMMAND_LINE)
    return Origin(f"{path.absolute().parent.name}/{path.stem}", command, sources)


def value_sources(path: Path) -> dict[str, str]:
    """The comment behind each field's value in a recipe's file, empty if there is none."""
    return dict(_FIELD.findall(path.read_text(encoding="utf-8-sig")))


def train_command(name: str, arguments: Sequence[str]) -> str:
    """The command line of a recipe; `recipes/NAME.py` and `hfcomp train NAME` are the same."""
    return shlex.join(["hfcomp", "train", name, *arguments])


def on_processes(command: str, number: int) -> str:
    if number == 1:
        return command
    return f"torchrun --nproc_per_node {number} -m hfcomp.cli {command.removeprefix('hfcomp ')}"


def default_facts(config_class: type, given: Collection[str]) -> dict[str, dict[str, Any]]:
    """The `defaults` of an objective that nobody set, and their `default_sources`, as `results.json` has them."""
    kept = [one for one in objective_fields(config_class) if one.name not in given]
    return {"defaults": {one.name: field_default(one) for one in kept}, "default_sources": default_sources(kept)}
