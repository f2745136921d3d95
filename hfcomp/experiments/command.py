"""The command line of a recipe, and its help: the fields that matter, with the recipe's values."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any

import torch
import yaml
from datasets import disable_progress_bars
from pydantic_core import PydanticUndefined
from transformers import TrainingArguments

from hfcomp.errors import FLAG, one_line_errors
from hfcomp.experiments.dry_run import DryRun
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.program import run
from hfcomp.experiments.recipe_fields import split_options
from hfcomp.experiments.recipe_files import studies
from hfcomp.experiments.recipes import Recipe, read_file, read_recipe
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.experiments.study import Study
from hfcomp.trainers.config import CompositionalConfig, field_default

INTRODUCTION = """Every field is an override: --field value. Options beside the fields:
  --config NAME_OR_PATH    another recipe
  --report NAME_OR_PATH    a sweep over settings, variants and seeds (slipform's margins), or a study of concepts
                           (hard_negatives' tradeoff)
  --search [NAME_OR_PATH]  a search for values by a benchmark, with Optuna (pip install 'hfcomp[search]')
  --dry_run                check data and models, time a few steps of each run, print hours, memory and disk
  --help-all               every field of hfcomp, with its help
  --traceback              the whole traceback of an error, as HFCOMP_TRACEBACK=1
A run that was killed resumes when the same command is given again."""
# Fields that are changed most often, besides those that the recipe sets and the objective's own.
USUAL = (
    *("model", "dataset", "batch_size", "mini_batch_size", "num_negatives", "controls", "evaluation"),
    *("evaluation_benchmarks", "primary", "forgetting_guard", "replay_dataset", "replay_fraction"),
)
WIDTH, LONGEST_HELP = 110, 170
LAST = "And every field of transformers' TrainingArguments (learning_rate, max_steps, output_dir, bf16, ...)."
# Python names in messages of trainers, and how the command line spells them.
SPELLINGS = {
    r"\bper_device_train_batch_size\b": "batch_size",
    r"\bset num_negatives=(\d+)": r"pass --num_negatives \1",
    r"\bdraw_captions=True\b": "captions=drawn",
    r"\bdraw_captions\b": "captions",
    r"(?<!\w)--split\b": "--dataset_split, --evaluation_split",
    r"\bcolumn_names=\{'(\w+)': '([^']*)'\}": r"--column_names \1='\2'",
}


def main(name: str, arguments: Sequence[str] | None = None) -> None:
    """Runs a recipe, or with `--report` or `--search` one of its studies.

    The recipe is that of the name unless `--config` names another; the arguments are by default those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not sys.stderr.isatty():  # in a file they are no bars but lines
        disable_progress_bars()
    with one_line_errors(traceback_wanted=FLAG in words), recipe_spelling():
        words = [word for word in words if word != FLAG]
        options, _ = split_options(words)
        if options.help or options.help_all:
            print(recipe_help(name, words, everything=options.help_all))
            return
        kind = DryRun if options.dry_run else Study
        if options.report is None and options.search is None:
            run(read_recipe(name, words + (_without_half(read_recipe(name, words)) if options.dry_run else [])), kind)
            return
        plan = read_plan(name, words)
        if options.dry_run and (changes := _without_half(plan.recipe)):
            plan = read_plan(name, words + changes)
        next(study.run for study in studies().values() if isinstance(plan, study.plan))(plan, kind)


def _without_half(recipe: Recipe) -> list[str]:
    """Overrides that let a machine without a GPU plan a run that will train in bf16 or fp16 elsewhere."""
    half = [] if torch.accelerator.is_available() else [one for one in ("bf16", "fp16") if recipe.given.get(one)]
    if half and not recipe.given.get("use_cpu"):
        print(f"no GPU is visible here: the dry run times fp32 on the CPU, not {half[0]}")
        return [word for one in half for word in (f"--{one}", "false")]
    return []


def recipe_help(name: str, arguments: Sequence[str] = (), *, everything: bool = False) -> str:
    """The help of a recipe, or of that which `--config` and `--objective` among the arguments name.

    It lists the fields that matter for the recipe, or `everything`: all fields of hfcomp, each with its whole help.
    """
    path, values, trainer_class = read_file(name, split_options(arguments)[0])
    config = trainer_class.config_class
    of_all, theirs = ({f.name for f in fields(kind)} for kind in (CompositionalConfig, TrainingArguments))
    ours = {key: (f.default, f.description) for key, f in ExperimentConfig.model_fields.items()}
    trainers = {f.name: (field_default(f), f.metadata.get("help", "")) for f in fields(config) if f.init}
    objective = [key for key in trainers if key not in of_all]
    common = [key for key in trainers if key in of_all - theirs]
    sections = {"Changed most often": USUAL, f"Of the objective ({config.__name__})": objective}
    if everything:
        sections = {"The experiment": ours, f"The trainer ({config.__name__})": [*objective, *common]}
    known, listed = ours | trainers, {key for names in sections.values() for key in names}
    parts = [f"recipe: {path}", INTRODUCTION]
    for title, names in sections.items():
        lines = [line for key in names for line in _lines(key, *known[key], values, everything)]
        parts += ["\n".join([title, "", *lines])] if lines else []
    rest = [f"--{key} {_spelled(value)}" for key, value in values.items() if key not in listed]
    others = [f"--{key}" for key in [*ours, *common, *objective] if key not in listed and key not in values]
    for title, text in {"Also set by this recipe": "  ".join(rest), "Further fields": " ".join(others)}.items():
        parts += ["\n".join([title, *textwrap.wrap(text, WIDTH, break_on_hyphens=False)])] if text else []
    return "\n\n".join([*parts, LAST])


def _lines(name: str, default: Any, text: str, values: dict[str, Any], whole: bool) -> list[str]:
    text = text if whole else textwrap.shorten(text, LONGEST_HELP, placeholder=" ...")
    value = _spelled(values.get(name, default)) + ("  (recipe)" if name in values else "")
    return [f"--{name} {value}", *textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")]


def _spelled(value: Any) -> str:
    if value in (None, PydanticUndefined, MISSING):
        return "(unset)"
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()


@contextmanager
def recipe_spelling() -> Iterator[None]:
    """Lets errors name fields as a recipe and its command line have them: the advice is followed there."""
    try:
        yield
    except (ValueError, OSError) as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            text = error.args[0]
            for pattern, spelling in SPELLINGS.items():
                text = re.sub(pattern, spelling, text)
            error.args = (text,)
        raise
