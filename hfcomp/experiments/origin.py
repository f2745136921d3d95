"""Origin of a run's values for its card: the recipe's comments and the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hfcomp.reporting.cards.methods import ON_COMMAND_LINE
from hfcomp.trainers.config import default_sources, field_default, objective_fields

# Fields start at the beginning of a line. YAML parsers drop comments, and only comments are needed here.
_FIELD = re.compile(r"^(\w+):[^#\n]*(?:# ?(.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class Origin:
    """The origin of a recipe's values."""

    recipe: str = ""  # method and file, for example `slipform/sandbox`
    command: str = ""  # command that repeats the run, as the user entered it
    sources: Mapping[str, str] = field(default_factory=dict)  # comment in the file, or the command line, by field


def read_origin(path: Path, command: str, overridden: Collection[str]) -> Origin:
    sources = value_sources(path) | dict.fromkeys(overridden, ON_COMMAND_LINE)
    return Origin(f"{path.absolute().parent.name}/{path.stem}", command, sources)


def value_sources(path: Path) -> dict[str, str]:
    """The comment after each field's value in a recipe file, or an empty string."""
    return dict(_FIELD.findall(path.read_text(encoding="utf-8-sig")))


def train_command(name: str, arguments: Sequence[str]) -> str:
    """The command line of a recipe; `recipes/NAME.py` and `hfcomp train NAME` are equivalent."""
    return shlex.join(["hfcomp", "train", name, *arguments])


def multi_process_command(command: str, number: int) -> str:
    if number == 1:
        return command
    return f"torchrun --nproc_per_node {number} -m hfcomp.cli {command.removeprefix('hfcomp ')}"


def default_facts(config_class: type, given: Collection[str]) -> dict[str, dict[str, Any]]:
    """The `defaults` of objective fields that were not set, and their `default_sources`, as in `results.json`."""
    unset = [field for field in objective_fields(config_class) if field.name not in given]
    defaults = {field.name: field_default(field) for field in unset}
    return {"defaults": defaults, "default_sources": default_sources(unset)}
