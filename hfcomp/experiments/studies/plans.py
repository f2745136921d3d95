"""What a sweep and a search are over: the models of their YAML files."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from hfcomp.experiments.experiment_config import SAME_BATCH, STATIC_MARGIN, Seeds, distinct
from hfcomp.merging.choice import TOLERANCE
from hfcomp.reading import nearest
from hfcomp.schemas import Strict, plain_name

NAMES_WITH_FIELDS = "names, each with a mapping of fields, as clean: {}"
VARIANTS_OR_BASE = "a list of variants or base"
INTERVAL = "a number, as in {low: 1e-5, high: 1e-2}, with log: true or int: true where wanted, or {choices: [...]}"


def _nothing_is_empty(value: Any) -> Any:
    return {} if value is None else value


def _check_choice(value: Any) -> Any:
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"found {value!r}, expected a name, number or switch.")
    return value


def _number(value: Any) -> Any:
    """YAML reads 1e-10 as a text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Name = Annotated[str, plain_name("base", "evaluation")]
Names = Annotated[list[str], Field(min_length=1)]
Fields = Annotated[dict[str, Any], BeforeValidator(_nothing_is_empty)]
Number = Annotated[float, BeforeValidator(_number)]
Choice = Annotated[Any, AfterValidator(_check_choice)]


def _check_names(place: str, names: list[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{place}: found {name!r}, expected one of {', '.join(known)}.{nearest(name, known)}")


class EmbeddingPlan(Strict):
    """Variants of a sweep whose embeddings are followed, in its first setting with its first seed.

    At most so many held-out `rows` and so many `checkpoints`, evenly over the steps and the end among them; the base
    comes on top. The first rows are shown one by one as `examples`. Only the form is the paper's; the numbers are our
    choice.
    """

    variants: Annotated[Names, AfterValidator(distinct)] = Field(description="a list of variants of the sweep")
    rows: Annotated[int, Field(ge=2)] = 200
    checkpoints: PositiveInt = 10
    examples: NonNegativeInt = 2

    @property
    def save_steps(self) -> float:
        """The same for `TrainingArguments`, as a fraction of the run: the number of steps is not known before it."""
        return (1 - 1e-9) / self.checkpoints  # a fraction is below 1; transformers rounds the product up


class Variant(Strict):
    """A variant of a sweep: fields of its trainer's config, and where it differs from the recipe, what it trains.

    `control` trains one of the controls of a recipe.
    `after` is the variant whose model it starts from in place of the base.
    """

    model_config = ConfigDict(extra="allow")

    objective: str | None = Field(default=None, description="module:class of a trainer")
    control: Literal["plain", SAME_BATCH, STATIC_MARGIN, "shuffled", "random-spans"] | None = None
    after: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Contrast(Strict):
    """A difference of means: those of some variants or the base, less those of others."""

    of: Names = Field(validation_alias="with", description=VARIANTS_OR_BASE)
    without: Names = Field(description=VARIANTS_OR_BASE)


class ChoicePlan(Strict):
    """How a setting is chosen, on the reference variant alone.

    Of the settings that keep the base's mean of the lines `keep`, by default all of general abilities, except for
    `tolerance` (a fraction), the one with the highest primary endpoint is chosen; if there is none, the one that loses
    least.
    """

    keep: Annotated[Names, AfterValidator(distinct)] | None = Field(
        default=None, description="a list of lines, as benchmark: metric"
    )
    tolerance: Annotated[float, Field(ge=0, le=1)] = TOLERANCE


class SweepPlan(Strict):
    """What a sweep is over: each variant, in their order, in each setting with each seed.

    `logged` are metrics of the training log whose mean is shown beside a variant, `benchmarks` those that the tables
    show (none means all), and `contrasts` say by name what a part of the method gives on average. `scenes` is the seed
    of the sandbox's evaluation scenes; those of reports are 0. With `choose` a setting is chosen.
    """

    seeds: Seeds = Field(description="a list of whole numbers, one or at least three")
    settings: dict[Name, Fields] = Field(min_length=1, description=NAMES_WITH_FIELDS)
    variants: dict[Name, Annotated[Variant, BeforeValidator(_nothing_is_empty)]] = Field(
        min_length=1, description=NAMES_WITH_FIELDS
    )
    reference: str = Field(description="the name of a variant")
    logged: list[str] = Field(default=[], description="a list of names")
    benchmarks: list[str] = Field(default=[], description="a list of names")
    embeddings: EmbeddingPlan | None = None
    scenes: NonNegativeInt = 0
    choose: ChoicePlan | None = None
    contrasts: dict[str, Contrast] = Field(
        default={}, description="a mapping of names to {with: [variants], without: [variants]}"
    )

    def chosen(self, key: str) -> dict[str, str]:
        """The `objective`, `control` or `after` of the variants that have one."""
        return {name: found for name, one in self.variants.items() if (found := getattr(one, key)) is not None}

    @property
    def first(self) -> tuple[str, int]:
        return next(iter(self.settings)), self.seeds[0]

    def for_recipe(self, objective: str) -> Self:
        """The same for a recipe that has this objective, which is then no other one of a variant."""
        same = {"objective": None}
        variants = {k: v.model_copy(update=same) if v.objective == objective else v for k, v in self.variants.items()}
        return self.model_copy(update={"variants": variants})

    def facts(self) -> dict[str, Any]:
        chosen = {"objectives": "objective", "controls": "control", "after": "after"}
        return {
            **{"settings": list(self.settings), "seeds": self.seeds, "variants": list(self.variants)},
            **{"reference": self.reference, "logged": self.logged, "benchmarks": self.benchmarks},
            **{name: self.chosen(key) for name, key in chosen.items()},
            "contrasts": {name: {"with": one.of, "without": one.without} for name, one in self.contrasts.items()},
            "scenes": self.scenes,
            "choose": self.choose and self.choose.model_dump(),
        }

    @model_validator(mode="after")
    def _check(self) -> Self:
        known, after = list(self.variants), self.chosen("after")
        _check_names("reference", [self.reference], known)
        for name, above in after.items():
            before = known[: known.index(name)]
            if above not in before:
                expected = f"expected a variant above it: {', '.join(before) or 'none'}"
                raise ValueError(f"variants: {name}: after: found {above!r}, {expected}.")
        for name, contrast in self.contrasts.items():
            _check_names(f"contrasts: {name}", [*contrast.of, *contrast.without], ["base", *known])
        followed = self.embeddings.variants if self.embeddings else []
        _check_names("embeddings: variants", followed, known)
        for name in followed:
            if name in after:
                start = f"starts from {after[name]}, expected one that starts from the base"
                raise ValueError(f"embeddings: variants: {name} {start}.")
        return self


class Interval(Strict):
    """The numbers between two ends, both included; with `log` drawn evenly in the logarithm."""

    model_config = ConfigDict(validate_by_name=True)

    low: Number = Field(description=INTERVAL)
    high: Number = Field(description=INTERVAL)
    log: bool = False
    whole: bool = Field(default=False, validation_alias="int")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.whole and (self.low % 1 or self.high % 1):
            raise ValueError(f"found {self.low:g} to {self.high:g}, expected whole numbers, as int is true.")
        if not self.low < self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}.")
        if self.log and self.low <= 0:
            raise ValueError(f"low {self.low:g}: a logarithmic range begins above 0.")
        return self

    def ends(self) -> list[Any]:
        """Values that stand for all in a check before anything is trained."""
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
    """Names, numbers, switches or nothing, one of which is tried; methods as those of [`Interval`]."""

    choices: Annotated[list[Choice], Field(min_length=2), AfterValidator(distinct)]

    def ends(self) -> list[Any]:
        return self.choices

    def suggest(self, trial: Any, name: str) -> Any:
        return trial.suggest_categorical(name, self.choices)

    def __contains__(self, value: Any) -> bool:
        # Compared with the type: True equals 1 in Python, and a switch is not a number here.
        return (type(value), value) in [(type(one), one) for one in self.choices]

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.choices))


def _range(value: Any) -> Interval | Choices:
    return (Choices if isinstance(value, dict) and "choices" in value else Interval).model_validate(value)


Range = Annotated[Interval | Choices, BeforeValidator(_range)]
"""The values that a search may try for a field; the kind is chosen by its key, so that errors are of one alone."""


class SearchPlan(Strict):
    """What a search tries, and how it judges: by a measure as sweeps name it, or the mean of all that fit a pattern.

    `ranges` are by field of the trainer's config or `batch_size`, `products` follow from them: field to the fields
    whose product it is. `only_in_search` holds for the trials, not for the recipe that comes out. The seed is that of
    the values that are tried; training has the recipe's own.
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
            raise ValueError("expected maximize: MEASURE or minimize: MEASURE, one of them.")
        for name in self.products:
            if name in self.ranges:
                raise ValueError(f"products: {name} has a range of its own. Leave one of the two out.")
        for name in self.only_in_search:
            if name in {*self.ranges, *self.products}:
                raise ValueError(f"only_in_search: {name} is searched. Leave one of the two out.")
        return self

    @property
    def measure(self) -> str:
        return self.maximize or self.minimize or ""

    @property
    def direction(self) -> str:
        return "minimize" if self.maximize is None else "maximize"

    def ends(self) -> list[dict[str, Any]]:
        """For each field its ends, and each choice, the other fields being at their first end."""
        # One field at a time: trying every combination of ends would grow exponentially.
        first = {name: space.ends()[0] for name, space in self.ranges.items()}
        others = [{**first, name: end} for name, space in self.ranges.items() for end in space.ends()[1:]]
        return [first, *others]

    def with_products(self, values: dict[str, Any], usual: dict[str, Any], where: str) -> dict[str, Any]:
        """The values of a trial and the products of these and of `usual`, the fields that the search leaves alone.

        A factor that is not a number is refused; errors call the place `where`.
        """
        known, found = usual | values, dict(values)
        for name, factors in self.products.items():
            for factor in factors:
                if type(known.get(factor)) not in (int, float):
                    raise ValueError(
                        f"{where}: products: {name}: {factor} is {known.get(factor)!r}, expected a number."
                    )
            product = prod(known[factor] for factor in factors)
            # A whole number may come as 4.0, and a batch cannot have 12.0 rows.
            found[name] = int(product) if product == int(product) else product
        return found
