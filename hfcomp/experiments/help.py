"""What `--help` prints: the fields that matter for a recipe, with its values; `--help-all` lists every field."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

import yaml
from pydantic_core import PydanticUndefined
from transformers import TrainingArguments

from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.recipes import read_file, split_options
from hfcomp.trainers.config import CompositionalConfig

INTRODUCTION = """Every field is an override: --field value. Options beside the fields:
  --config NAME_OR_PATH    another recipe
  --report NAME_OR_PATH    a sweep over settings, variants and seeds (slipform's margins), or a study of concepts
                           (hard_negatives' tradeoff)
  --search [NAME_OR_PATH]  a search for values by a benchmark, with Optuna (pip install 'hfcomp[search]')
  --help-all               every field of hfcomp, with its help
  --traceback              the whole traceback of an error, as HFCOMP_TRACEBACK=1
A run that was killed goes on when the same command is given again."""
# What is changed most often, beside what the recipe sets and the objective's own fields.
USUAL = (
    "model",
    "dataset",
    "batch_size",
    "mini_batch_size",
    "num_negatives",
    "controls",
    "evaluation",
    "evaluation_benchmarks",
    "primary",
)
WIDTH, LONGEST_HELP = 110, 170


class _Member(NamedTuple):
    name: str
    default: Any
    help: str


def recipe_help(name: str, arguments: Sequence[str] = (), *, everything: bool = False) -> str:
    """The help of a recipe.

    Args:
        name: recipe name or path, used unless `arguments` holds `--config`.
        arguments: of the command line; all but `--config` and `--objective` are ignored.
        everything: list every field of hfcomp instead of those that matter for the recipe, each with its whole help.
    """
    options, _ = split_options(arguments)
    path, values, trainer_class = read_file(name, options)
    config = trainer_class.config_class
    theirs = {f.name for f in fields(TrainingArguments)}
    of_all = {f.name for f in fields(CompositionalConfig)}
    ours = [_Member(key, f.default, f.description) for key, f in ExperimentConfig.model_fields.items()]
    of_trainer = [_Member(f.name, _default(f), f.metadata.get("help", "")) for f in fields(config) if f.init]
    common = [member for member in of_trainer if member.name in of_all - theirs]
    objective = [member for member in of_trainer if member.name not in of_all]
    known = {member.name: member for member in (*ours, *common, *objective)}
    parts = [f"recipe: {path}", INTRODUCTION]
    if everything:
        parts += [_section("The experiment", ours, values)]
        parts += [_section(f"The trainer ({config.__name__})", [*objective, *common], values)]
    else:
        parts += [_section("Changed most often", (known[name] for name in USUAL), values, LONGEST_HELP)]
        parts += [_section(f"Of the objective ({config.__name__})", objective, values, LONGEST_HELP)]
    shown = set(known) if everything else {*USUAL, *(member.name for member in objective)}
    rest = [f"--{key} {_shown(value)}" for key, value in values.items() if key not in shown]
    parts.append(
        "\n".join(["Also set by this recipe", *textwrap.wrap("  ".join(rest), WIDTH, break_on_hyphens=False)])
    )
    others = " ".join(f"--{name}" for name in known if name not in shown and name not in values)
    if others:
        parts.append("\n".join(["Further fields", *textwrap.wrap(others, WIDTH, break_on_hyphens=False)]))
    parts.append(
        "And every field of transformers' TrainingArguments (learning_rate, max_steps, output_dir, bf16, ...)."
    )
    return "\n\n".join(part for part in parts if part)


def _default(member: Any) -> Any:
    found = member.default_factory() if member.default_factory is not MISSING else member.default
    return None if found is MISSING else found


def _section(title: str, members: Iterable[_Member], values: dict[str, Any], longest: int | None = None) -> str:
    lines = []
    for name, default, text in members:
        value = values.get(name, default)
        lines.append(f"--{name} {_shown(value)}" + ("  (recipe)" if name in values else ""))
        text = textwrap.shorten(text, longest, placeholder=" ...") if longest else text
        lines += textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([title, "", *lines]) if lines else ""


def _shown(value: Any) -> str:
    if value in (None, PydanticUndefined):
        return "(unset)"
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()
