"""`hfcomp train`: runs a recipe, one of its studies, or a search for its values."""

from __future__ import annotations

from collections.abc import Sequence

USAGE = "RECIPE [--config FILE] [--report SWEEP | --search [FILE]] [--field value ...]"


def main(arguments: Sequence[str]) -> None:
    """Runs a recipe, given by name or file before its options and fields; see `hfcomp.experiments.command`."""
    words = list(arguments)
    if words[:1] in (["-h"], ["--help"]):
        about = "Train and compare a recipe's base, controls and method."
        fields = "`hfcomp train RECIPE --help` lists the recipe's fields and their values."
        print(f"usage: hfcomp train {USAGE}\n\n{about} {fields}\n\nRECIPE: a YAML file, or one of\n{_list_recipes()}")
        return
    if not words or words[0].startswith("-"):
        raise ValueError(
            f"hfcomp train needs a recipe as its first argument: {USAGE}. `hfcomp train --help` lists the recipes."
        )
    _check_names(words)
    from hfcomp.experiments.command import main as run

    run(words[0], words[1:])


def _check_names(words: Sequence[str]) -> None:
    """Raises if a recipe, dataset or model does not exist, before torch is imported."""
    from hfcomp.cli.places import check_datasets, option_values
    from hfcomp.experiments.recipe_files import check_place, find_recipe
    from hfcomp.reading import read_yaml

    for name in (words[0], *option_values(words, "config")):
        read_yaml(find_recipe(name))
    for field in ("dataset", "model"):
        for value in option_values(words, field):
            check_place(field, value)
    check_datasets(option_values(words, "dataset"))


def _list_recipes() -> str:
    from hfcomp.experiments.recipe_files import recipe_files, recipes_folder

    methods: dict[str, list[str]] = {}
    for path in recipe_files(recipes_folder()):
        methods.setdefault(path.parent.name, []).append(f"{path.parent.name}/{path.stem}")
    return "\n".join("  " + " ".join([method, *names]) for method, names in methods.items())
