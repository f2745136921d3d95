"""Locates the YAML files of recipes and plans. Loads no library: a wrong name is reported at once."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from hfcomp.reading import may_be_hub_id, nearest, shipped_folder

SWEEP, STUDY, SEARCH = "sweep", "study", "search"


PLAN_KEYS = {"variants": SWEEP, "accuracy": STUDY, "ranges": SEARCH}  # each in files of that kind alone


OPTIONS = {SWEEP: "report", STUDY: "report", SEARCH: "search"}


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
    plans = [path for path in sorted(folder.glob("*.yaml")) if OPTIONS.get(plan_of(top_level_keys(path))) == option]
    known = {path.stem: path for path in plans}
    if (stem := name.removesuffix(".yaml")) in known:
        return known[stem]
    listed = f"Known: {', '.join(known)}." if known else "It has none."
    raise FileNotFoundError(f"{name}: no such {option} of {recipe}.{nearest(name, known)} {listed} Or pass a file.")


def plan_of(keys: Collection[str]) -> str:
    """The kind of plan that a file with these keys is, or an empty string."""
    return next((kind for key, kind in PLAN_KEYS.items() if key in keys), "")


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
