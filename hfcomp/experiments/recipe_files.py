"""Locates the YAML files of recipes and studies. A wrong recipe name is reported before any library is loaded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from hfcomp.plugins import load_plugins
from hfcomp.reading import may_be_hub_id, nearest, shipped_folder

ENTRY_POINTS = "hfcomp.studies"
STUDIES = {
    "variants": "hfcomp.experiments.studies.sweep:SWEEP",
    "accuracy": "hfcomp.analysis.tradeoff:TRADEOFF",
    "ranges": "hfcomp.experiments.studies.search:SEARCH",
}
"""The `StudyKind`s of this library by key, kept as a table like the commands in `hfcomp.cli`."""


@dataclass(frozen=True)
class StudyKind:
    """A kind of study: several runs of a recipe, described by a YAML file.

    Attributes:
        key: Key that only files of this kind have. Its entry point has the same name.
        noun: Name of the kind in messages.
        option: Command-line option that takes a file of this kind, `report` or `search`.
        plan: Class that represents a file. `plan.read(source, path, values)` creates a plan from the recipe (a
            `RecipeFile`) and the file's path and values; its `recipe` contains what all runs share.
        run: Function that runs a plan with `Study` (or `DryRun` for a dry run) and returns the folder.
    """

    key: str
    noun: str
    option: str
    plan: type[Any]
    run: Callable[[Any, Any], Path]


@cache
def studies() -> dict[str, StudyKind]:
    """All kinds of study by key: first ours, then those of installed packages."""
    ours = {key: resolve_name(place) for key, place in STUDIES.items()}
    return ours | load_plugins(ENTRY_POINTS, StudyKind, ours, lambda kind: kind.key)


def recipes_folder() -> Path:
    """The folder with the recipes, inside the installed package or next to it in a clone."""
    return shipped_folder("recipes", "*/*.yaml")


def recipe_files(folder: Path) -> list[Path]:
    """The recipe files in a folder, without the YAML files of sweeps, studies and searches."""
    return [path for path in sorted(folder.glob("*/*.yaml")) if "objective" in top_level_keys(path)]


def find_recipe(name: str) -> Path:
    """Finds the YAML file of a recipe by its path, by `method` (the sandbox recipe) or by `method/file`."""
    if Path(name).is_file():
        return Path(name)
    folder, stem = recipes_folder(), name.removesuffix(".yaml")
    for candidate in (folder / f"{stem}.yaml", folder / stem / "sandbox.yaml"):
        if candidate.is_file():
            return candidate
    files = recipe_files(folder)
    known = [path.parent.name for path in files if path.stem == "sandbox"]
    known += [f"{path.parent.name}/{path.stem}" for path in files if path.stem != "sandbox"]
    problem = "no such file, and no recipe with that name" if name.endswith(".yaml") else "no such recipe"
    problem = f"this is a folder, and {problem}" if Path(name).is_dir() else problem
    raise FileNotFoundError(f"{name}: {problem}.{nearest(name, known)} Known: {', '.join(known)}.")


def find_plan(recipe: str, name: str, option: str) -> Path:
    """Finds the YAML file of a plan for `report` or `search`, by its path or its name next to the recipe's files."""
    if Path(name).is_file():
        return Path(name)
    folder = Path(recipe).parent if Path(recipe).is_file() else recipes_folder() / recipe.partition("/")[0]
    kinds = {path: study_kind(top_level_keys(path)) for path in sorted(folder.glob("*.yaml"))}
    known = {path.stem: path for path, kind in kinds.items() if kind and kind.option == option}
    if (stem := name.removesuffix(".yaml")) in known:
        return known[stem]
    listed = f"Known: {', '.join(known)}." if known else "This recipe has none."
    raise FileNotFoundError(
        f"{name}: {recipe} has no such {option}.{nearest(name, known)} {listed} You can also pass a file."
    )


def study_kind(keys: Collection[str]) -> StudyKind | None:
    """The kind of study that a file with these keys describes, or None."""
    return next((kind for key, kind in studies().items() if key in keys), None)


def top_level_keys(path: Path) -> set[str]:
    """The keys at the beginning of lines, without parsing the file: a listing must not fail on a damaged file."""
    return set(re.findall(r"^(\w+):", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE))


def check_place(field: str, value: str | None) -> None:
    """Raises for a path that does not exist, before anything requests it from the Hub."""
    if value is None or "://" in value or Path(value).exists():
        return
    below_folder = "/" in value and Path(value).parts[0] in os.listdir()
    if below_folder or "\\" in value or not may_be_hub_id(value):
        raise FileNotFoundError(
            f"{field}={value}: no such file or folder. If another recipe creates it, run that recipe first; otherwise "
            f"correct --{field}."
        )
