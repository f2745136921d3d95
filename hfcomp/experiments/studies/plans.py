"""Pydantic models of the YAML files of sweeps and searches."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from hfcomp.experiments.experiment_config import SAME_BATCH, STATIC_MARGIN, Seeds, distinct
from hfcomp.merging.choice import TOLERANCE
from hfcomp.reading import nearest
from hfcomp.schemas import Strict, plain_name

NAMES_WITH_FIELDS = "names, each with a mapping of fields, for example clean: {}"
VARIANTS_OR_BASE = "a list of variants or base"
INTERVAL = "a number, as in {low: 1e-5, high: 1e-2}, optionally with log: true or int: true, or {choices: [...]}"


def _empty_if_none(value: Any) -> Any:
    return {} if value is None else value


def _check_choice(value: Any) -> Any:
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"found {value!r}, expected a name, a number, true or false.")
    return value


def _number(value: Any) -> Any:
    """Converts text to a number, because YAML reads 1e-10 as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Name = Annotated[str, plain_name("base", "evaluation")]
Names = Annotated[list[str], Field(min_length=1)]
Fields = Annotated[dict[str, Any], BeforeValidator(_empty_if_none)]
Number = Annotated[float, BeforeValidator(_number)]
Choice = Annotated[Any, AfterValidator(_check_choice)]


def _check_names(place: str, names: list[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{place}: found {name!r}, expected one of {', '.join(known)}.{nearest(name, known)}")


class EmbeddingPlan(Strict):
    """Variants of a sweep whose embeddings are followed, in the first setting with the first seed.

    `rows` and `checkpoints` are upper bounds for the held-out rows and for the checkpoints, which are spread evenly
    over the steps and include the end; the base is added to them. The first rows are shown individually as `examples`.
    Only the layout comes from the paper; the numbers are our choice.
    """

    variants: Annotated[Names, AfterValidator(distinct)] = Field(description="a list of variants of the sweep")
    rows: Annotated[int, Field(ge=2)] = 200
    checkpoints: PositiveInt = 10
    examples: NonNegativeInt = 2

    @property
    def save_steps(self) -> float:
        """`checkpoints` as a fraction of the run for `TrainingArguments`; the number of steps is not known yet."""
        return (1 - 1e-9) / self.checkpoints  # a fraction is below 1; transformers rounds the product up


class Variant(Strict):
    """A variant of a sweep: fields of its trainer's config, and its `objective` if it differs from the recipe's.

    `control` trains one of the controls of a recipe. `after` names the variant whose model it starts from instead of
    the base.
    """

    model_config = ConfigDict(extra="allow")

    objective: str | None = Field(default=None, description="module:class of a trainer")
    control: Literal["plain", SAME_BATCH, STATIC_MARGIN, "shuffled", "random-spans"] | None = None
    after: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Contrast(Strict):
    """A difference of means: the mean of some variants (or the base) minus the mean of others."""

    of: Names = Field(validation_alias="with", description=VARIANTS_OR_BASE)
    without: Names = Field(description=VARIANTS_OR_BASE)


class ChoicePlan(Strict):
    """The rule that chooses a setting, applied only to the reference variant.

    A setting qualifies if its mean over the lines `keep` (by default all general abilities) is at most `tolerance` (a
    fraction) below the base's mean. The rule chooses the qualifying setting with the highest primary endpoint. If no
    setting qualifies, it chooses the one that loses least.
    """

    keep: Annotated[Names, AfterValidator(distinct)] | None = Field(
        default=None, description="a list of lines, each written as benchmark: metric"
    )
    tolerance: Annotated[float, Field(ge=0, le=1)] = TOLERANCE


class SweepPlan(Strict):
    """A sweep: every variant, in the given order, in every setting with every seed.

    `logged` lists training-log metrics whose means are shown per variant. `benchmarks` lists the benchmarks in the
    tables; a name is a title, a role (`primary`, `composition`, `general`), the place where a mean over benchmarks is
    published, or a pattern of these, and an empty list means all. `contrasts` name differences that show what a part
    of the method gives on average. `scenes` is the seed of the sandbox's evaluation scenes; reports use 0. With
    `choose`, a rule chooses a setting. `varies` lists fields that variants may set although their batches or steps
    then differ: the study is about them, or a variant is a stage before others.
    """

    seeds: Seeds = Field(description="a list of whole numbers, one or at least three")
    settings: dict[Name, Fields] = Field(min_length=1, description=NAMES_WITH_FIELDS)
    variants: dict[Name, Annotated[Variant, BeforeValidator(_empty_if_none)]] = Field(
        min_length=1, description=NAMES_WITH_FIELDS
    )
    reference: str = Field(description="the name of a variant")
    logged: list[str] = Field(default=[], description="a list of names")
    benchmarks: list[str] = Field(default=[], description="a list of names")
    embeddings: EmbeddingPlan | None = None
    scenes: NonNegativeInt = 0
    choose: ChoicePlan | None = None
    varies: list[Literal["batch_size", "num_train_epochs"]] = []
    contrasts: dict[str, Contrast] = Field(
        default={}, description="a mapping of names to {with: [variants], without: [variants]}"
    )

    def variant_values(self, key: str) -> dict[str, str]:
        """The `objective`, `control` or `after` of the variants that set it."""
        values = {name: getattr(variant, key) for name, variant in self.variants.items()}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def first(self) -> tuple[str, int]:
        return next(iter(self.settings)), self.seeds[0]

    def for_recipe(self, objective: str) -> Self:
        """A copy in which variants with the recipe's own objective do not count as changing the objective."""
        same = {"objective": None}
        variants = {k: v.model_copy(update=same) if v.objective == objective else v for k, v in self.variants.items()}
        return self.model_copy(update={"variants": variants})

    def facts(self) -> dict[str, Any]:
        chosen = {"objectives": "objective", "controls": "control", "after": "after"}
        return {
            **{"settings": list(self.settings), "seeds": self.seeds, "variants": list(self.variants)},
            **{"reference": self.reference, "logged": self.logged, "benchmarks": self.benchmarks},
            **{name: self.variant_values(key) for name, key in chosen.items()},
            "contrasts": {
                name: {"with": contrast.of, "without": contrast.without} for name, contrast in self.contrasts.items()
            },
            "scenes": self.scenes,
            "choose": self.choose and self.choose.model_dump(),
        }

    @model_validator(mode="after")
    def _check(self) -> Self:
        known, after = list(self.variants), self.variant_values("after")
        _check_names("reference", [self.reference], known)
        for name, above in after.items():
            before = known[: known.index(name)]
            if above not in before:
                expected = f"expected a variant listed above it: {', '.join(before) or 'none'}"
                raise ValueError(f"variants: {name}: after: found {above!r}, {expected}.")
        for name, contrast in self.contrasts.items():
            _check_names(f"contrasts: {name}", [*contrast.of, *contrast.without], ["base", *known])
        followed = self.embeddings.variants if self.embeddings else []
        _check_names("embeddings: variants", followed, known)
        for name in followed:
            if name in after:
                start = f"starts from {after[name]}, expected a variant that starts from the base"
                raise ValueError(f"embeddings: variants: {name} {start}.")
        return self


class Interval(Strict):
    """A range of numbers, both ends included; with `log`, values are drawn uniformly on a log scale."""

    model_config = ConfigDict(validate_by_name=True)

    low: Number = Field(description=INTERVAL)
    high: Number = Field(description=INTERVAL)
    log: bool = False
    whole: bool = Field(default=False, validation_alias="int")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.whole and (self.low % 1 or self.high % 1):
            raise ValueError(f"found {self.low:g} to {self.high:g}, expected whole numbers because int is true.")
        if not self.low < self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}.")
        if self.log and self.low <= 0:
            raise ValueError(f"low {self.low:g}: a logarithmic range must begin above 0.")
        return self

    def ends(self) -> list[Any]:
        """Values that are checked, in place of all values, before anything is trained."""
        return [int(end) if self.whole else end for end in (self.low, self.high)]

    def suggest(self, trial: Any, name: str) -> Any:
        return (trial.suggest_int if self.whole else trial.suggest_float)(name, *self.ends(), log=self.log)

    def __contains__(self, value: Any) -> bool:
        inside = type(value) in (int, float) and self.low <= value <= self.high
        return inside and not (self.whole and value % 1)

    def __str__(self) -> str:
        further = [name for name, on in (("log", self.log), ("whole", self.whole)) if on]
        return ", ".join([f"{self.low:g} to {self.high:g}", *further])


class Choices(Strict):
    """A list of names, numbers, switches or null, one of which is tried; has the methods of [`Interval`]."""

    choices: Annotated[list[Choice], Field(min_length=2), AfterValidator(distinct)]

    def ends(self) -> list[Any]:
        return self.choices

    def suggest(self, trial: Any, name: str) -> Any:
        return trial.suggest_categorical(name, self.choices)

    def __contains__(self, value: Any) -> bool:
        # Compares types too: True equals 1 in Python, but a switch is not a number here.
        return (type(value), value) in [(type(choice), choice) for choice in self.choices]

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.choices))


def _range(value: Any) -> Interval | Choices:
    return (Choices if isinstance(value, dict) and "choices" in value else Interval).model_validate(value)


Range = Annotated[Interval | Choices, BeforeValidator(_range)]
"""Values that a search may try for a field. The key selects the kind, so errors mention only that kind."""


class SearchPlan(Strict):
    """A search: the values to try, and the measure to optimize, named as in sweeps or as a pattern (mean of matches).

    `ranges` has the values by field of the trainer's config or `batch_size`. `products` defines further fields, each
    as the product of other fields. `only_in_search` applies to the trials, not to the resulting recipe. `seed`
    determines the values that are tried; training uses the recipe's own seed.
    """

    maximize: str | None = None
    minimize: str | None = None
    trials: PositiveInt
    ranges: dict[str, Range] = Field(
        min_length=1, description="a mapping of fields: {learning_rate: {low: 1e-5, high: 1e-2, log: true}}"
    )
    products: dict[str, Names] = Field(default={}, description="lists of fields by field")
    only_in_search: dict[str, Any] = {}
    seed: NonNegativeInt = 42

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.maximize is None) == (self.minimize is None):
            raise ValueError("expected exactly one of maximize: MEASURE and minimize: MEASURE.")
        for name in self.products:
            if name in self.ranges:
                raise ValueError(f"products: {name} also has a range. Leave one of the two out.")
        for name in self.only_in_search:
            if name in {*self.ranges, *self.products}:
                raise ValueError(f"only_in_search: {name} is also searched. Leave one of the two out.")
        return self

    @property
    def measure(self) -> str:
        return self.maximize or self.minimize or ""

    @property
    def direction(self) -> str:
        return "minimize" if self.maximize is None else "maximize"

    def ends(self) -> list[dict[str, Any]]:
        """The ends or choices of each field, while the other fields are at their first end."""
        # One field at a time, because the number of combinations of ends grows exponentially.
        first = {name: space.ends()[0] for name, space in self.ranges.items()}
        others = [{**first, name: end} for name, space in self.ranges.items() for end in space.ends()[1:]]
        return [first, *others]

    def with_products(self, values: dict[str, Any], usual: dict[str, Any], where: str) -> dict[str, Any]:
        """Adds products to the values of a trial; `usual` has the values of fields that the search does not change.

        Raises ValueError, beginning with `where`, for a factor that is not a number.
        """
        known, extended = usual | values, dict(values)
        for name, factors in self.products.items():
            for factor in factors:
                if type(known.get(factor)) not in (int, float):
                    raise ValueError(
                        f"{where}: products: {name}: {factor} is {known.get(factor)!r}, expected a number."
                    )
            product = prod(known[factor] for factor in factors)
            # A whole number may come as 4.0, and a batch cannot have 12.0 rows.
            extended[name] = int(product) if product == int(product) else product
        return extended
