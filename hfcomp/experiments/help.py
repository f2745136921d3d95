"""What `--help` prints: the recipe's file, and hfcomp's fields with their help and the recipe's values."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

import yaml
from transformers import TrainingArguments

from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.recipes import read_file, split_options

INTRODUCTION = """Every field below is an override, as --field value, and so is every field of transformers'
TrainingArguments (learning_rate, max_steps, output_dir, bf16, ...).

--config NAME_OR_PATH
    Another recipe.
--report NAME_OR_PATH
    A sweep of this recipe over settings, variants and seeds, such as slipform's margins, or a study of concepts, such
    as hard_negatives' tradeoff.
--search [NAME_OR_PATH]
    A search for values of fields by a benchmark, with Optuna (pip install 'hfcomp[search]').

A run that was killed goes on when the same command is given again."""


def recipe_help(name: str, arguments: Sequence[str] = ()) -> str:
    """The help of a recipe.

    Args:
        name: recipe name or path, used unless `arguments` holds `--config`.
        arguments: of the command line; all but `--config` and `--objective` are ignored.
    """
    options, _ = split_options(arguments)
    path, values, trainer_class = read_file(name, options)
    config = trainer_class.config_class
    theirs = {f.name for f in fields(TrainingArguments)}
    added = [f for f in fields(config) if f.init and f.name not in theirs]
    ours = {f.name for f in (*fields(ExperimentConfig), *added)}
    parts = [f"recipe: {path}", INTRODUCTION]
    parts += [_section("The experiment", fields(ExperimentConfig), values)]
    parts += [_section(f"The trainer ({config.__name__})", added, values)]
    others = {key: value for key, value in values.items() if key not in ours}
    if others:
        lines = [f"--{key} {_shown(value)}" for key, value in others.items()]
        parts.append("\n".join(["TrainingArguments that this recipe sets", "", *lines]))
    return "\n\n".join(parts)


def _section(title: str, members: Sequence[Field], values: dict[str, Any]) -> str:
    lines = [title, ""]
    for member in members:
        default = member.default_factory() if member.default_factory is not MISSING else member.default
        value = values.get(member.name, None if default is MISSING else default)
        lines.append(f"--{member.name} {_shown(value)}".rstrip() + ("  (recipe)" if member.name in values else ""))
        lines += textwrap.wrap(member.metadata.get("help", ""), 100, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if value is None:
        return "(unset)"
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()
