"""Where recipes lie, and the plans beside them: sweeps, studies of concepts, searches. Cheap to import."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import hfcomp
from hfcomp.reading import nearest, read_yaml

SWEEP, STUDY, SEARCH = "sweep", "study", "search"
PLAN_KEYS = {"variants": SWEEP, "accuracy": STUDY, "ranges": SEARCH}  # each in files of that kind alone
OPTIONS = {SWEEP: "report", STUDY: "report", SEARCH: "search"}
FILE_ENDINGS = (".json", ".jsonl", ".csv", ".parquet", ".arrow", ".tar", ".txt", ".yaml")


def recipes_folder() -> Path:
    """Where the recipes lie: inside the installed package, or beside it in a clone.

    Raises:
        FileNotFoundError: when neither exists.
    """
    package = Path(hfcomp.__file__).parent
    for folder in (package / "recipes", package.parent / "recipes"):
        if any(folder.glob("*/*.yaml")):
            return folder
    raise FileNotFoundError(f"no recipes beside {package}; reinstall hfcomp, or pass --config <file>.")


def recipe_files(folder: Path) -> list[Path]:
    """The recipes in a folder of them, without the YAML files of sweeps, studies and searches."""
    return [path for path in sorted(folder.glob("*/*.yaml")) if "objective" in keys(path)]


def find_recipe(name: str) -> Path:
    """The YAML file of a recipe: a path, `method` (its sandbox) or `method/file`.

    Raises:
        FileNotFoundError: naming the recipes that exist.
    """
    if Path(name).is_file():
        return Path(name)
    folder = recipes_folder()
    stem = name.removesuffix(".yaml")
    for candidate in (folder / f"{stem}.yaml", folder / stem / "sandbox.yaml"):
        if candidate.is_file():
            return candidate
    known = sorted(str(path.relative_to(folder).with_suffix("")) for path in recipe_files(folder))
    there = "no such file, and no recipe of that name" if name.endswith(".yaml") else "no such recipe"
    there = f"a folder, and {there}" if Path(name).is_dir() else there
    raise FileNotFoundError(f"{name}: {there}.{nearest(name, known)} Known: {', '.join(known)}.")


def find_plan(recipe: str, name: str, option: str) -> Path:
    """The YAML file of a plan: a path, or a name beside the recipe's files.

    Args:
        recipe: name or path.
        name: of the plan.
        option: that names it, `report` or `search`.

    Raises:
        FileNotFoundError: naming the plans of the recipe.
    """
    if Path(name).is_file():
        return Path(name)
    folder = Path(recipe).parent if Path(recipe).is_file() else recipes_folder() / recipe.partition("/")[0]
    known = {path.stem: path for path in sorted(folder.glob("*.yaml")) if OPTIONS.get(plan_of(keys(path))) == option}
    if name.removesuffix(".yaml") in known:
        return known[name.removesuffix(".yaml")]
    listed = f"Known: {', '.join(known)}." if known else "It has none."
    raise FileNotFoundError(f"{name}: no such {option} of {recipe}.{nearest(name, known)} {listed}")


def plan_of(keys: Collection[str]) -> str:
    """The kind of plan that a file with these keys is, or an empty string."""
    return next((kind for key, kind in PLAN_KEYS.items() if key in keys), "")


def check_place(field: str, value: str | None) -> None:
    """Refuses a path without a file or folder, before anybody asks the Hub for it.

    A name is a path, and not a Hub id, where it begins as one, has more than one slash, ends as a file does, or begins
    with a folder that exists.

    Args:
        field: what errors call it.
        value: of the field.

    Raises:
        FileNotFoundError: naming field and path.
    """
    if value is None or "://" in value or Path(value).exists():
        return
    begins = value.startswith((".", "/", "~")) or ("/" in value and Path(value).parts[0] in os.listdir())
    if begins or value.count("/") > 1 or "\\" in value or value.endswith(FILE_ENDINGS):
        raise FileNotFoundError(
            f"{field}={value}: no such file or folder. If another recipe leaves it there, run that one first; else "
            f"correct --{field}."
        )


def keys(path: Path) -> set[str]:
    """The keys of a YAML file; none where it is not a mapping."""
    values = read_yaml(path)
    return set(values) if isinstance(values, dict) else set()
