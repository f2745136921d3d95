"""The file of a sweep or of a study: where it lies, and what one of a sweep may say."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from hfcomp.data.columns import nearest
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.experiments.recipes import recipes_folder
from hfcomp.reading import read_yaml

NEEDED = ("seeds", "settings", "variants", "reference")
KEYS = (*NEEDED, "logged", "benchmarks", "embeddings", "contrasts")
# What a variant may set beside the fields of its trainer.
OF_VARIANTS = ("objective", "control", "after", "column_names")
# Names become folders, and parts of the names of models.
NAME = re.compile(r"\w[\w.+-]*")
TAKEN = ("base", "evaluation")
# What all runs of a sweep share, but for a variant's objective.
SHARED_FIELDS = {
    *("objective", "method", "controls", "model", "fresh_model", "clip_vocabulary"),
    *("column_names", "output_dir", "seed"),
}
SHARED_PREFIXES = ("base_", "evaluation")
# What the variants of a setting share, beside the fields of the experiment.
STEP_FIELDS = {
    *("max_steps", "num_train_epochs", "gradient_accumulation_steps", "per_device_train_batch_size"),
    *("dataloader_drop_last", "data_seed"),
}


def find_report(recipe: str, name: str) -> Path:
    """The YAML file of a sweep or a study of concepts: a path, or a name beside the recipe's files.

    Raises:
        FileNotFoundError: naming the reports of the recipe.
    """
    return find_beside(recipe, name, what="report", keys={"variants", "accuracy"})


def find_beside(recipe: str, name: str, *, what: str, keys: Collection[str]) -> Path:
    """The YAML file that a path names, or a name beside the recipe's files.

    Args:
        recipe: name or path.
        name: path, or name with or without `.yaml`.
        what: what errors call it.
        keys: a file with any of them is one.

    Raises:
        FileNotFoundError: naming those of the recipe.
    """
    if Path(name).is_file():
        return Path(name)
    folder = Path(recipe).parent if Path(recipe).is_file() else recipes_folder() / recipe.partition("/")[0]
    known = [path for path in sorted(folder.glob("*.yaml")) if set(keys) & _keys(path)]
    for path in known:
        if path.stem == name.removesuffix(".yaml"):
            return path
    names = [path.stem for path in known]
    listed = f"Known: {', '.join(names)}." if names else "It has none."
    raise FileNotFoundError(f"no {what} {name!r} of {recipe}.{nearest(name, names)} {listed}")


def is_sweep(path: Path) -> bool:
    """Whether a file is a sweep, and no study of concepts.

    Raises:
        ValueError: for a file that is no YAML.
    """
    return "accuracy" not in _keys(path)


def read_sweep_file(path: Path, *, known: Collection[str], overridden: Collection[str]) -> dict[str, Any]:
    """The values of a sweep's file, checked but for the fields of its variants and for `embeddings`.

    Args:
        path: of the file.
        known: fields that a setting may set, apart from those that the runs of a sweep share.
        overridden: fields that the command line sets.

    Raises:
        ValueError: naming the file, and the place in it.
    """
    values = read_mapping(path, NEEDED, KEYS, form="a sweep is a mapping with seeds, settings, variants and reference")
    _check_seeds(values["seeds"], path)
    _check_parts(values["settings"], f"{path}: settings")
    _check_parts(values["variants"], f"{path}: variants", only_trainer=True)
    _check_settings(values["settings"], path, known, overridden)
    if values["reference"] not in list(values["variants"]):
        raise ValueError(f"{path}: reference {values['reference']!r} is none of {', '.join(values['variants'])}.")
    _check_contrasts(values.get("contrasts") or {}, list(values["variants"]), f"{path}: contrasts")
    for key in ("logged", "benchmarks"):
        listed = values.get(key) or []
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise ValueError(f"{path}: {key}: found {listed!r}, expected a list of names.")
    return values


def read_mapping(path: Path, needed: Collection[str], known: Collection[str], *, form: str) -> dict[str, Any]:
    """What a file holds, a mapping with these keys.

    Args:
        path: of the file.
        needed: keys that it has to have.
        known: all that it may have.
        form: what it should be, for errors.

    Raises:
        ValueError: for a file that is no YAML or no such mapping, and an unknown key.
    """
    values = read_yaml(path)
    if not isinstance(values, dict) or not set(needed) <= values.keys():
        raise ValueError(f"{path}: {form}.")
    for key in values:
        if key not in known:
            raise ValueError(f"{path}: unknown key {key!r}.{nearest(str(key), known)} Known: {', '.join(known)}.")
    return values


def _keys(path: Path) -> set[str]:
    values = read_yaml(path)
    return set(values) if isinstance(values, dict) else set()


def _check_seeds(seeds: Any, path: Path) -> None:
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise ValueError(f"{path}: seeds: found {seeds!r}, expected a list of whole numbers.")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{path}: seeds: found {seeds!r}, one of them twice: it would count as two runs.")


def _check_parts(parts: Any, where: str, *, only_trainer: bool = False) -> None:
    if not isinstance(parts, dict) or not parts or not all(isinstance(part or {}, dict) for part in parts.values()):
        raise ValueError(f"{where}: found {parts!r}, expected names, each with a mapping of fields: clean: {{}}.")
    experiment = {f.name for f in fields(ExperimentConfig)}
    for name, part in parts.items():
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in TAKEN:
            raise ValueError(
                f"{where}: {name!r} cannot be a folder's name here. Use letters, digits, '_', '-', '+' and '.', in "
                f"quotes where YAML reads another thing than a text, and none of {', '.join(TAKEN)}."
            )
        for key in part or {}:
            if only_trainer and key in OF_VARIANTS:
                continue
            if key in SHARED_FIELDS or str(key).startswith(SHARED_PREFIXES):
                raise ValueError(f"{where}: {name}: {key} is the same for all runs of a sweep. Set it for the recipe.")
            if only_trainer and key in experiment | STEP_FIELDS:
                what = "the steps" if key in STEP_FIELDS else "the rows or batches"
                raise ValueError(f"{where}: {name}: {key} changes {what}. Make it a setting.")


def _check_contrasts(contrasts: Any, variants: list[str], where: str) -> None:
    form = "name: {with: [variants], without: [variants]}"
    if not isinstance(contrasts, dict):
        raise ValueError(f"{where}: found {contrasts!r}, expected {form}.")
    known = ["base", *variants]
    for name, sides in contrasts.items():
        if not isinstance(sides, dict) or set(sides) != {"with", "without"}:
            raise ValueError(f"{where}: {name}: found {sides!r}, expected {form}.")
        for side, names in sides.items():
            if not isinstance(names, list) or not names or not all(one in known for one in names):
                expected = f"a list of any of {', '.join(known)}"
                raise ValueError(f"{where}: {name}: {side}: found {names!r}, expected {expected}.")


def _check_settings(settings: dict[str, Any], path: Path, known: Collection[str], overridden: Collection[str]) -> None:
    """Fields of settings are those of the recipe, and neither they nor the seed are set by the command line too."""
    if "seed" in overridden:
        raise ValueError(f"command line: --seed is set by {path}: seeds. Leave it out, or change it there.")
    for name, part in settings.items():
        where = f"{path}: settings: {name}"
        for key in part or {}:
            if key not in known:
                raise ValueError(f"{where}: unknown field {key!r}.{nearest(str(key), known)}")
            if key in overridden:
                raise ValueError(f"command line: --{key} is set by {where}. Leave it out, or change it there.")
