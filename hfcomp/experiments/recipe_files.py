"""Locates the YAML files of recipes and studies. A wrong name of a recipe is reported before a library is loaded."""

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
"""The `StudyKind`s of this library by their keys. A table, as that of the commands in `hfcomp.cli`."""


@dataclass(frozen=True)
class StudyKind:
    """A kind of study: several runs beside those of a recipe, as a YAML file says.

    Attributes:
        key: Key that only files of this kind have. Its entry point has the same name.
        noun: Name of the kind in messages.
        option: Option that names a file of this kind on the command line, `report` or `search`.
        plan: Class of what a file says. `plan.read(source, path, values)` makes one from the recipe (a `RecipeFile`),
            and from the path and the values of the file; its `recipe` is what all runs share.
        run: Runs a plan with `Study`, or for a dry run with `DryRun`, and returns the folder.
    """

    key: str
    noun: str
    option: str
    plan: type[Any]
    run: Callable[[Any, Any], Path]


@cache
def studies() -> dict[str, StudyKind]:
    """All kinds of study by key: ours, then those of installed packages."""
    ours = {key: resolve_name(place) for key, place in STUDIES.items()}
    return ours | load_plugins(ENTRY_POINTS, StudyKind, ours, lambda kind: kind.key)


def recipes_folder() -> Path:
    """The folder of the recipes, inside the installed package or beside it in a clone."""
    return shipped_folder("recipes", "*/*.yaml")


def recipe_files(folder: Path) -> list[Path]:
    """The recipes in a folder of them, without the YAML files of sweeps, studies and searches."""
    return [path for path in sorted(folder.glob("*/*.yaml")) if "objective" in top_level_keys(path)]


def find_recipe(name: str) -> Path:
    """The YAML file of a recipe: a path, `method` (its sandbox) or `method/file`."""
    if Path(name).is_file():
        return Path(name)
    folder, stem = recipes_folder(), name.removesuffix(".yaml")
    for candidate in (folder / f"{stem}.yaml", folder / stem / "sandbox.yaml"):
        if candidate.is_file():
            return candidate
    files = recipe_files(folder)
    known = [path.parent.name for path in files if path.stem == "sandbox"]
    known += [f"{path.parent.name}/{path.stem}" for path in files if path.stem != "sandbox"]
    there = "no such file, and no recipe of that name" if name.endswith(".yaml") else "no such recipe"
    there = f"a folder, and {there}" if Path(name).is_dir() else there
    raise FileNotFoundError(f"{name}: {there}.{nearest(name, known)} Known: {', '.join(known)}.")


def find_plan(recipe: str, name: str, option: str) -> Path:
    """The YAML file of a plan that `report` or `search` names: a path, or a name beside the recipe's files."""
    if Path(name).is_file():
        return Path(name)
    folder = Path(recipe).parent if Path(recipe).is_file() else recipes_folder() / recipe.partition("/")[0]
    kinds = {path: study_kind(top_level_keys(path)) for path in sorted(folder.glob("*.yaml"))}
    known = {path.stem: path for path, kind in kinds.items() if kind and kind.option == option}
    if (stem := name.removesuffix(".yaml")) in known:
        return known[stem]
    listed = f"Known: {', '.join(known)}." if known else "It has none."
    raise FileNotFoundError(f"{name}: no such {option} of {recipe}.{nearest(name, known)} {listed} Or pass a file.")


def study_kind(keys: Collection[str]) -> StudyKind | None:
    """The kind of study that a file with these keys is of."""
    return next((kind for key, kind in studies().items() if key in keys), None)


def top_level_keys(path: Path) -> set[str]:
    """The keys of a file as they begin its lines: to list files, of which one may be damaged."""
    return set(re.findall(r"^(\w+):", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE))


def check_place(field: str, value: str | None) -> None:
    """Refuses a path without a file or folder, before anybody asks the Hub for it."""
    if value is None or "://" in value or Path(value).exists():
        return
    below_folder = "/" in value and Path(value).parts[0] in os.listdir()
    if below_folder or "\\" in value or not may_be_hub_id(value):
        raise FileNotFoundError(
            f"{field}={value}: no such file or folder. If another recipe leaves it there, run that one first; else "
            f"correct --{field}."
        )
