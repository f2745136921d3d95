"""A recipe's command line and its help, which lists the relevant fields with the recipe's values."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
from hfcomp.experiments.without_data import only_the_report, without_data
from hfcomp.trainers.config import CompositionalConfig, field_default

INTRODUCTION = """Override any field with --field value. Options in addition to the fields:
  --config NAME_OR_PATH    use another recipe
  --report NAME_OR_PATH    run a sweep over settings, variants and seeds (for slipform: margins), or a study of
                           concepts (for hard_negatives: tradeoff)
  --search [NAME_OR_PATH]  search for the best values on a benchmark with Optuna (pip install 'hfcomp[search]')
  --dry_run                check data and models, time a few steps of each run, print hours, memory and disk
  --rows N                 with --dry_run: count steps and GPU hours for N training rows, without data, model and GPU
  --help-all               list every field of hfcomp with its help
  --traceback              show the full traceback of an error, like HFCOMP_TRACEBACK=1
Repeat the same command to resume a run that was killed."""
# Fields that are changed most often, in addition to those that the recipe sets and those of the objective.
USUAL = (
    *("model", "dataset", "batch_size", "mini_batch_size", "num_negatives", "controls", "evaluation"),
    *("evaluation_benchmarks", "primary", "forgetting_guard", "replay_dataset", "replay_fraction"),
)
WIDTH, LONGEST_HELP = 110, 180
LAST = "All fields of transformers' TrainingArguments also work (learning_rate, max_steps, output_dir, bf16, ...)."
# Python names in trainer messages, and their spelling on the command line.
SPELLINGS = {
    r"\bper_device_train_batch_size\b(?! is derived)": "batch_size",
    r"\bset num_negatives=(\d+)": r"pass --num_negatives \1",
    r"\bdraw_captions=True\b": "captions=drawn",
    r"\bdraw_captions\b": "captions",
    r"(?<!\w)--split\b": "--dataset_split, --evaluation_split",
    r"\bcolumn_names=\{'(\w+)': '([^']*)'\}": r"--column_names \1='\2'",
}


def main(name: str, arguments: Sequence[str] | None = None) -> None:
    """Runs a recipe, or one of its studies with `--report` or `--search`.

    `name` selects the recipe unless `--config` names another one. `arguments` default to those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not sys.stderr.isatty():  # in a file, progress bars would be separate lines
        disable_progress_bars()
    with one_line_errors(traceback_wanted=FLAG in words), recipe_spelling():
        words = [word for word in words if word != FLAG]
        options, _ = split_options(words)
        if options.help or options.help_all:
            print(recipe_help(name, words, everything=options.help_all))
            return
        read = read_recipe if options.report is None and options.search is None else read_plan
        plan, kind = read(name, words), DryRun if options.dry_run else Study
        if options.rows is not None:
            if not options.dry_run:
                raise ValueError("command line: --rows works only with --dry_run. Add --dry_run, or leave --rows out.")
            plan, kind = without_data(plan, options.rows)
        elif options.dry_run and (changes := _fp32_overrides(plan if isinstance(plan, Recipe) else plan.recipe)):
            plan = read(name, words + changes)
        with nullcontext() if options.rows is None else only_the_report():
            if isinstance(plan, Recipe):
                run(plan, kind)
            else:
                next(study.run for study in studies().values() if isinstance(plan, study.plan))(plan, kind)


def _fp32_overrides(recipe: Recipe) -> list[str]:
    """Overrides that let a machine without a GPU plan a run that will train in bf16 or fp16 elsewhere."""
    half = [] if torch.accelerator.is_available() else [name for name in ("bf16", "fp16") if recipe.given.get(name)]
    if half and not recipe.given.get("use_cpu"):
        print(f"no GPU is visible: the dry run times fp32 on the CPU instead of {half[0]}")
        return [word for name in half for word in (f"--{name}", "false")]
    return []


def recipe_help(name: str, arguments: Sequence[str] = (), *, everything: bool = False) -> str:
    """The help of a recipe, which `--config` and `--objective` in the arguments may replace.

    Lists the fields that matter for the recipe, or with `everything` all fields of hfcomp, each with its full help.
    """
    path, values, trainer_class = read_file(name, split_options(arguments)[0])
    config = trainer_class.config_class
    shared, theirs = ({f.name for f in fields(kind)} for kind in (CompositionalConfig, TrainingArguments))
    ours = {key: (f.default, f.description) for key, f in ExperimentConfig.model_fields.items()}
    trainers = {f.name: (field_default(f), f.metadata.get("help", "")) for f in fields(config) if f.init}
    objective = [key for key in trainers if key not in shared]
    common = [key for key in trainers if key in shared - theirs]
    sections = {"Changed most often": USUAL, f"Objective ({config.__name__})": objective}
    if everything:
        sections = {"Experiment": ours, f"Trainer ({config.__name__})": [*objective, *common]}
    known, listed = ours | trainers, {key for names in sections.values() for key in names}
    parts = [f"recipe: {path}", INTRODUCTION]
    for title, names in sections.items():
        lines = [line for key in names for line in _lines(key, *known[key], values, everything)]
        parts += ["\n".join([title, "", *lines])] if lines else []
    rest = [f"--{key} {_as_yaml(value)}" for key, value in values.items() if key not in listed]
    others = [f"--{key}" for key in [*ours, *common, *objective] if key not in listed and key not in values]
    for title, text in {"Also set by this recipe": "  ".join(rest), "Further fields": " ".join(others)}.items():
        parts += ["\n".join([title, *textwrap.wrap(text, WIDTH, break_on_hyphens=False)])] if text else []
    return "\n\n".join([*parts, LAST])


def _lines(name: str, default: Any, text: str, values: dict[str, Any], whole: bool) -> list[str]:
    text = text if whole else _first_sentences(" ".join(text.split()))
    value = _as_yaml(values.get(name, default)) + ("  (recipe)" if name in values else "")
    return [f"--{name} {value}", *textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")]


def _first_sentences(text: str) -> str:
    """The first sentence, and as many of the next as fit into `LONGEST_HELP` characters."""
    ends = [match.end() for match in re.finditer(r"\.(?= [A-Z]|$)", text)] or [len(text)]
    return text[: max((end for end in ends if end <= LONGEST_HELP), default=ends[0])]


def _as_yaml(value: Any) -> str:
    if value in (None, PydanticUndefined, MISSING):
        return "(unset)"
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()


@contextmanager
def recipe_spelling() -> Iterator[None]:
    """Rewrites errors to name fields as in a recipe and on its command line, where the user follows the advice."""
    try:
        yield
    except (ValueError, OSError) as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            text = error.args[0]
            for pattern, spelling in SPELLINGS.items():
                text = re.sub(pattern, spelling, text)
            error.args = (text,)
        raise
