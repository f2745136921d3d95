"""Plan files of a recipe, such as a sweep or a search, read together with the recipes of their parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.experiments.pushing import reject_push
from hfcomp.experiments.recipe_fields import check_known, split_options
from hfcomp.experiments.recipe_files import find_plan, studies, study_kind
from hfcomp.experiments.recipes import Recipe, RecipeFile
from hfcomp.experiments.studies.plans import SearchPlan, SweepPlan
from hfcomp.experiments.study import evaluation_settings
from hfcomp.old_names import current_names
from hfcomp.reading import read_yaml
from hfcomp.schemas import parse

EXPERIMENT_FIELDS = frozenset(ExperimentConfig.model_fields)
# Fields that all runs of a plan share, except for a variant's objective and column names.
SHARED_FIELDS = {
    *("objective", "method", "controls", "model", "fresh_model", "clip_vocabulary"),
    *("column_names", "output_dir", "seed", "seeds"),
    *(name for name in EXPERIMENT_FIELDS if name.startswith("evaluation")),
}
# Fields that the variants of a setting share, in addition to the experiment fields.
STEP_FIELDS = {
    *("max_steps", "num_train_epochs", "gradient_accumulation_steps", "per_device_train_batch_size"),
    *("dataloader_drop_last", "data_seed"),
}
USUAL_KEYS = {"report": "variants", "search": "ranges"}
_SAME_IN_SWEEP = "must be the same for all runs of a sweep. Set it in the recipe."
_SAME_IN_SEARCH = (
    "must be the same for all trials, which share rows and evaluation to be comparable. Set it in the recipe."
)
_LUCK = "cannot be searched: the best of several seeds is luck. Compare seeds with --report."
_RECIPE_FIELDS = {"objective", "method", "controls", "column_names", "output_dir", "seeds"}
# Places in a plan, fields that may not be set there, and the reason.
REJECTED: list[tuple[tuple[str, ...], Collection[str], str]] = [
    (("settings",), SHARED_FIELDS, _SAME_IN_SWEEP),
    (("variants",), SHARED_FIELDS - {"column_names"}, _SAME_IN_SWEEP),
    (("variants",), STEP_FIELDS, "changes the steps. Move it to a setting."),
    (("variants",), EXPERIMENT_FIELDS | {"replay_fraction"}, "changes the rows or batches. Move it to a setting."),
    (("ranges", "products"), {"seed", "data_seed"}, _LUCK),
    (("ranges", "products"), SHARED_FIELDS | EXPERIMENT_FIELDS - {"batch_size"}, _SAME_IN_SEARCH),
    (("only_in_search",), _RECIPE_FIELDS, "belongs to the recipe. Set it there, or on the command line."),
]


@dataclass(frozen=True)
class Sweep:
    """A sweep, with the recipe that all runs share and the recipe of each run by setting, seed and variant.

    `notes` say which fields are left out for a variant with another objective.
    """

    recipe: Recipe
    plan: SweepPlan
    parts: dict[tuple[str, int, str], Recipe] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, source: RecipeFile, path: Path, values: Any) -> Self:
        """Reads a sweep. A setting may change the data or training of all variants, a variant only trainer fields.

        A variant with `objective` uses another trainer. Fields that this trainer does not have are left out and noted.
        """
        plan = parse(SweepPlan, values, str(path)).for_recipe(source.values["objective"])
        settings = {f"settings: {name}": changed for name, changed in plan.settings.items()}
        variants = {
            f"variants: {name}": [field for field in variant.fields if field not in plan.varies]
            for name, variant in plan.variants.items()
        }
        check_fields(source, path, {"seeds": ["seed"], **settings, **variants})
        sweep = cls(recipe_of_all(source, path, report=values), plan)
        for setting, changed in plan.settings.items():
            for seed in plan.seeds:
                shared = {f"{path}: settings: {setting}": changed, f"{path}: seeds": {"seed": seed}}
                for name, variant in plan.variants.items():
                    changes = {**shared, f"{path}: variants: {name}": variant.fields}
                    where = f"{path}: settings: {setting}, variants: {name}"
                    part = source.recipe(changes, objective=variant.objective, where=where)
                    sweep.parts[setting, seed, name] = part
                    note = f"{name}: {', '.join(part.left_out)} ignored, because {variant.objective} has no such field"
                    sweep.notes.extend([note] if part.left_out and note not in sweep.notes else [])
        if plan.embeddings is not None:
            check_source(sweep.first(plan.reference).experiment, where=f"{path}: embeddings")
        return sweep

    def first(self, variant: str) -> Recipe:
        """The recipe of a variant in the first setting with the first seed."""
        return self.parts[*self.plan.first, variant]


@dataclass(frozen=True)
class Search:
    """A search, with the recipes at the ends of its ranges, which are checked before any trial is trained.

    `plain` is the recipe without the fields that apply only to the search.
    """

    recipe: Recipe
    plan: SearchPlan
    plain: Recipe
    source: RecipeFile
    path: Path
    parts: dict[str, Recipe] = field(default_factory=dict)

    @classmethod
    def read(cls, source: RecipeFile, path: Path, values: Any) -> Self:
        if find_spec("optuna") is None:
            raise ValueError("--search needs Optuna. Install it with: pip install 'hfcomp[search]'.")
        plan = parse(SearchPlan, values, str(path))
        places = {"ranges": plan.ranges, "products": plan.products, "only_in_search": plan.only_in_search}
        factors = {f"products: {name}": factors for name, factors in plan.products.items()}
        for place, names in {**places, **factors}.items():
            check_known(names, source.hints, f"{path}: {place}")
        check_fields(source, path, places)
        recipe = recipe_of_all(source, path, {f"{path}: only_in_search": plan.only_in_search})
        # Values of two evaluations are not comparable, so another evaluation is another search.
        tried = {key: value for key, value in values.items() if key != "trials"}
        recipe.given["search"] = {**tried, "judged_by": evaluation_settings(recipe.experiment, recipe.column_names)}
        search = cls(recipe, plan, source.recipe(), source, path)
        search.parts.update({values_text(ends): search.trial(ends) for ends in plan.ends()})
        return search

    def trial(self, values: dict[str, Any]) -> Recipe:
        """The recipe of a trial."""
        where = f"{self.path}: ranges: with {values_text(values)}"
        changes = self.plan.with_products(values, _values_of(self.recipe), where)
        return self.source.recipe({where: self.plan.only_in_search | changes}, where=where)

    def result(self, values: dict[str, Any]) -> Recipe:
        """The recipe with a trial's values, without the fields that apply only to the search."""
        where = str(self.path)
        return self.source.recipe({where: self.plan.with_products(values, _values_of(self.plain), where)})

    def own_values(self) -> dict[str, Any]:
        """The recipe's own values of the fields that are searched."""
        usual = _values_of(self.plain)
        return {name: usual.get(name) for name in self.plan.ranges}


def read_plan(name: str, arguments: Sequence[str]) -> Any:
    """Reads the plan that `--report` or `--search` names, and its recipe, given by name or `--config`.

    Raises ValueError if the plan does not fit the recipe, or if the plan and the command line set the same field.
    """
    options, _ = split_options(arguments)
    if options.report is not None and options.search is not None:
        raise ValueError("command line: --report and --search cannot be combined. Leave one of them out.")
    option = "search" if options.report is None else "report"
    path = find_plan(name, getattr(options, option), option)
    values = current_names(read_yaml(path))
    # A file without any key of a kind is read as a sweep or a search, whose error names the missing key.
    kind = study_kind(values if isinstance(values, dict) else ()) or studies()[USUAL_KEYS[option]]
    if kind.option != option:
        raise ValueError(f"command line: --{option}: {path} is a {kind.noun}. Use --{kind.option} {path}.")
    source = RecipeFile.read(name, arguments)
    source.values.pop("seeds", None)  # these apply to a run of the recipe itself
    if seeds := source.overridden.pop("seeds", None):
        if not isinstance(values, dict) or "seeds" not in values:
            raise ValueError(f"command line: --seeds has no effect on {path}, which has one seed. Leave --seeds out.")
        values["seeds"] = seeds
    reject_push({**source.values, **source.overridden}, str(path))
    return kind.plan.read(source, path, values)


def check_fields(source: RecipeFile, path: Path, places: Mapping[str, Collection[str]]) -> None:
    """Raises for fields that a plan may not set at a place, and for fields that the command line also sets."""
    for place, names in places.items():
        for where, rejected, why in REJECTED:
            for name in names if place.partition(":")[0] in where else ():
                if name in rejected:
                    raise ValueError(f"{path}: {place}: {name} {why}")
        source.reject_overridden(names, f"{path}: {place}")


def recipe_of_all(
    source: RecipeFile, path: Path, changes: Mapping[str, Mapping[str, Any]] | None = None, **given: Any
) -> Recipe:
    """The recipe that all runs share, with a separate folder for the plan."""
    recipe = source.recipe(changes)
    if recipe.experiment.forgetting_guard:
        raise ValueError(f"{path}: forgetting_guard works only for a single run of a recipe. Leave it out here.")
    if "output_dir" not in source.overridden:
        recipe.trainer_arguments["output_dir"] = f"{recipe.folder}-{path.stem}"
    recipe.given.update(given)
    return recipe


def _values_of(recipe: Recipe) -> dict[str, Any]:
    """The value of every field of a recipe, including defaults."""
    members = fields(recipe.trainer_class.config_class)
    return {f.name: f.default for f in members if f.default is not MISSING} | dict(recipe.experiment) | recipe.given


def values_text(values: dict[str, Any]) -> str:
    """The values of a trial in one line."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def check_source(config: ExperimentConfig, *, where: str) -> None:
    """Raises if an experiment has no held-out rows with negatives; `where` names the place that needs them."""
    named = {"evaluation_split", "evaluation_dataset"} & config.model_fields_set
    if config.dataset != SANDBOX and config.evaluation != "own" and not named:
        raise ValueError(
            f"{where}: evaluation={config.evaluation!r} with {config.dataset} names no held-out rows with negative "
            "captions. Pass their --evaluation_split (and --evaluation_dataset), or leave embeddings out. To hold out "
            'rows of the training split: --dataset_split "train[200:]" --evaluation_split "train[:200]"'
        )
