"""What a sweep, a study of concepts and a search are over: the models of their YAML files."""

from __future__ import annotations

from math import prod
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from hfcomp.reading import nearest
from hfcomp.schemas import Strict, plain_name

ACCURACY, RETRIEVAL, VISUAL = "accuracy", "retrieval", "visual"
# Controls that train the method itself on other rows; the others are variants by their fields or their objective.
ROW_CONTROLS = ("shuffled", "random-spans")

Name = Annotated[str, plain_name("base", "evaluation")]
Names = Annotated[list[str], Field(min_length=1)]


def _nothing_is_empty(value: Any) -> Any:
    return {} if value is None else value


Fields = Annotated[dict[str, Any], BeforeValidator(_nothing_is_empty)]


def _distinct(values: list[Any]) -> list[Any]:
    twice = [value for number, value in enumerate(values) if value in values[:number]]
    if twice:
        raise ValueError(f"{twice[0]!r} is there twice, and would count as two.")
    return values


def _check_names(place: str, names: list[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{place}: {name!r} is none of {', '.join(known)}.{nearest(name, known)}")


class EmbeddingPlan(Strict):
    """Whose embeddings a sweep follows. Only the form is the paper's; the numbers are our choice.

    Attributes:
        variants: of the sweep, followed in its first setting with its first seed.
        rows: held-out rows, at most.
        checkpoints: at most, evenly over the steps, the end among them; the base comes on top.
        examples: rows that are shown one by one, the first ones.
    """

    variants: Annotated[Names, AfterValidator(_distinct)] = Field(description="a list of variants of the sweep")
    rows: Annotated[int, Field(ge=2)] = 200
    checkpoints: PositiveInt = 10
    examples: NonNegativeInt = 2

    @property
    def save_steps(self) -> float:
        """The same for `TrainingArguments`, as a share of the run: the number of steps is not known before it."""
        return (1 - 1e-9) / self.checkpoints  # a share is below 1; transformers rounds the product up


class Variant(Strict):
    """A variant of a sweep: fields of its trainer's config, and what else it may say.

    Attributes:
        objective: `module:class` where it is not the recipe's.
        control: what is trained in its place.
        after: the variant whose model it starts from; `None` for the base.
    """

    model_config = ConfigDict(extra="allow")

    objective: str | None = Field(default=None, description="module:class of a trainer")
    control: Literal[ROW_CONTROLS] | None = None
    after: str | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Of its trainer's config."""
        return dict(self.model_extra or {})


class Contrast(Strict):
    """A difference of means: those of some variants or the base, less those of others."""

    of: Names = Field(validation_alias="with", description="a list of variants or base")
    without: Names = Field(description="a list of variants or base")


class SweepPlan(Strict):
    """What a sweep is over.

    Attributes:
        seeds: of rows and training.
        settings: name to fields that all variants share.
        variants: by name, in the order of training.
        reference: the variant that differences refer to.
        logged: metrics of the training log whose mean is shown beside a variant.
        benchmarks: those that the tables show; none means all.
        embeddings: whose embeddings are followed through training.
        contrasts: what a part gives on average, by name.
    """

    seeds: Annotated[list[NonNegativeInt], Field(min_length=1), AfterValidator(_distinct)] = Field(
        description="a list of whole numbers"
    )
    settings: Annotated[dict[Name, Fields], Field(min_length=1)] = Field(
        description="names, each with a mapping of fields, as clean: {}"
    )
    variants: Annotated[dict[Name, Annotated[Variant, BeforeValidator(_nothing_is_empty)]], Field(min_length=1)] = (
        Field(description="names, each with a mapping of fields, as clean: {}")
    )
    reference: str = Field(description="the name of a variant")
    logged: list[str] = Field(default=[], description="a list of names")
    benchmarks: list[str] = Field(default=[], description="a list of names")
    embeddings: EmbeddingPlan | None = None
    contrasts: dict[str, Contrast] = Field(
        default={}, description="a mapping of names to {with: [variants], without: [variants]}"
    )

    @property
    def objectives(self) -> dict[str, str]:
        """Of variants that train another one than the recipe's."""
        return {name: one.objective for name, one in self.variants.items() if one.objective is not None}

    @property
    def controls(self) -> dict[str, str]:
        """Of variants that are one."""
        return {name: one.control for name, one in self.variants.items() if one.control is not None}

    @property
    def after(self) -> dict[str, str]:
        """What variants start from that do not start from the base."""
        return {name: one.after for name, one in self.variants.items() if one.after is not None}

    @property
    def first(self) -> tuple[str, int]:
        """The first setting and the first seed."""
        return next(iter(self.settings)), self.seeds[0]

    def beside(self, objective: str) -> Self:
        """The same for a recipe that has this objective, which is no other one of a variant."""
        same = {"objective": None}
        variants = {k: v.model_copy(update=same) if v.objective == objective else v for k, v in self.variants.items()}
        return self.model_copy(update={"variants": variants})

    def facts(self) -> dict[str, Any]:
        """What `sweep.json` says of it."""
        names = ("reference", "logged", "benchmarks", "objectives", "controls", "after")
        return {
            **{"settings": list(self.settings), "seeds": self.seeds, "variants": list(self.variants)},
            **{name: getattr(self, name) for name in names},
            "contrasts": {name: {"with": one.of, "without": one.without} for name, one in self.contrasts.items()},
        }

    @model_validator(mode="after")
    def _check(self) -> Self:
        known = list(self.variants)
        _check_names("reference", [self.reference], known)
        for name, above in self.after.items():
            before = known[: known.index(name)]
            if above not in before:
                expected = f"expected a variant above it: {', '.join(before) or 'none'}"
                raise ValueError(f"variants: {name}: after: found {above!r}, {expected}.")
        for name, contrast in self.contrasts.items():
            _check_names(f"contrasts: {name}", [*contrast.of, *contrast.without], ["base", *known])
        for name in self.embeddings.variants if self.embeddings else ():
            _check_names("embeddings: variants", [name], known)
            if name in self.after:
                start = self.after[name]
                raise ValueError(
                    f"embeddings: variants: {name} starts from {start}, expected one that starts from the base."
                )
        return self


class LineName(NamedTuple):
    """Which outcomes of an evaluation are meant."""

    benchmark: str
    metric: str


def _risen(numbers: list[int]) -> list[int]:
    return sorted(set(numbers))


Numbers = Annotated[list[PositiveInt], Field(min_length=1), AfterValidator(_risen)]


class TradeoffPlan(Strict):
    """What a study of concepts is over.

    Attributes:
        concepts: each with its numbers of hard negatives, rising.
        per_epoch: checkpoints of an epoch; `checkpoints_per_epoch` in the file.
        accuracy: what stands for the concept; its subset of the concept's name is read.
        retrieval: what stands for general abilities; all of its subsets are read.
        visual: the concept seen from the images (Eq. 2), if there is such.
        further: other benchmarks with accuracy's metric.
    """

    model_config = ConfigDict(validate_by_name=True)

    concepts: Annotated[dict[Name, Numbers], Field(min_length=1)] = Field(
        description="names with numbers of negatives, as object: [1, 2, 3]"
    )
    per_epoch: PositiveInt = Field(default=10, validation_alias="checkpoints_per_epoch")
    accuracy: LineName = Field(description="{benchmark: ..., metric: ...}")
    retrieval: LineName = Field(description="{benchmark: ..., metric: ...}")
    visual: LineName | None = Field(default=None, description="{benchmark: ..., metric: ...}")
    further: list[str] = Field(default=[], description="a list of benchmarks")

    def lines(self) -> dict[str, LineName]:
        """The lines of the tables, by what they stand for."""
        found = {ACCURACY: self.accuracy, RETRIEVAL: self.retrieval}
        found |= {VISUAL: self.visual} if self.visual else {}
        return found | {name: LineName(name, self.accuracy.metric) for name in self.further}

    def runs(self, concept: str) -> list[str]:
        """The runs of a concept, in the order of the tables."""
        return ["plain", *(f"HN{number}" for number in self.concepts[concept])]


def _number(value: Any) -> Any:
    """YAML reads 1e-10 as a text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _check_choice(value: Any) -> Any:
    if not isinstance(value, str | int | float | None):
        raise ValueError(f"found {value!r}, expected a name, number or switch.")
    return value


Number = Annotated[float, BeforeValidator(_number)]
Choice = Annotated[Any, AfterValidator(_check_choice)]


class Range(Strict):
    """The values that a search may try for a field: numbers between two ends, both included, or one of several.

    Attributes:
        low: the least.
        high: the greatest.
        log: drawn evenly in the logarithm.
        whole: whole numbers only; `int` in the file.
        choices: names, numbers, switches or nothing, in place of the four above.
    """

    model_config = ConfigDict(validate_by_name=True)

    low: Number | None = None
    high: Number | None = None
    log: bool = False
    whole: bool = Field(default=False, validation_alias="int")
    choices: list[Choice] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.choices is not None:
            if self.model_fields_set != {"choices"} or len(self.choices) < 2:
                raise ValueError(
                    f"choices: found {self.choices!r}, expected at least two, and no low or high beside them."
                )
            if len({(type(value), value) for value in self.choices}) < len(self.choices):
                raise ValueError(f"choices: found {self.choices!r}, one of them twice.")
            return self
        if self.low is None or self.high is None:
            raise ValueError(
                "expected {low: 1e-5, high: 1e-2}, with log: true or int: true where wanted, or {choices: [...]}."
            )
        if self.whole and (self.low % 1 or self.high % 1):
            raise ValueError(f"found {self.low:g} to {self.high:g}, expected whole numbers, as int is true.")
        if not self.low < self.high:
            raise ValueError(f"low {self.low:g} is not below high {self.high:g}.")
        if self.log and self.low <= 0:
            raise ValueError(f"low {self.low:g}: a logarithmic range begins above 0.")
        return self

    def suggest(self, trial: Any, name: str) -> Any:
        """The value of an Optuna trial."""
        if self.choices is not None:
            return trial.suggest_categorical(name, self.choices)
        ask = trial.suggest_int if self.whole else trial.suggest_float
        return ask(name, *self.ends(), log=self.log)

    def __contains__(self, value: Any) -> bool:
        if self.choices is not None:
            return any(type(value) is type(one) and value == one for one in self.choices)
        if type(value) not in (int, float) or not self.low <= value <= self.high:
            return False
        return not self.whole or value == int(value)

    def ends(self) -> list[Any]:
        """Values that stand for all in a check before anything is trained: both ends, or every choice."""
        if self.choices is not None:
            return self.choices
        return [int(end) if self.whole else end for end in (self.low, self.high)]

    def __str__(self) -> str:
        if self.choices is not None:
            return "one of " + ", ".join(map(str, self.choices))
        further = [name for name, on in (("log", self.log), ("whole", self.whole)) if on]
        return ", ".join([f"{self.low:g} to {self.high:g}", *further])


class SearchPlan(Strict):
    """What a search tries, and how it judges.

    Attributes:
        maximize: name of a measure as sweeps have it, or a pattern of names whose mean counts (`sandbox levels: *`).
        minimize: the same, in its place.
        trials: how many.
        ranges: values to try, by field of the trainer's config or `batch_size`.
        products: field to the fields whose product it is.
        only_in_search: fields of the recipe that hold for the trials, not for the recipe that comes out.
        seed: of the values that are tried; training has the recipe's own.
    """

    maximize: str | None = None
    minimize: str | None = None
    trials: PositiveInt
    ranges: Annotated[dict[str, Range], Field(min_length=1)] = Field(
        description="a mapping of fields: {learning_rate: {low: 1e-5, high: 1e-2, log: true}}"
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

    def ends(self) -> list[dict[str, Any]]:
        """For each field its ends, and each choice, the other fields being at their first end."""
        first = {name: space.ends()[0] for name, space in self.ranges.items()}
        others = [{**first, name: end} for name, space in self.ranges.items() for end in space.ends()[1:]]
        return [first, *others]

    @property
    def measure(self) -> str:
        """What a model is judged by."""
        return self.maximize or self.minimize or ""

    @property
    def direction(self) -> str:
        """`maximize` or `minimize`."""
        return "minimize" if self.maximize is None else "maximize"

    def with_products(self, values: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
        """The values of a trial and what follows from them.

        Args:
            values: by field.
            usual: of the fields that the search leaves alone.

        Raises:
            ValueError: for a factor that is not a number.
        """
        known = usual | values
        for name, factors in self.products.items():
            for factor in factors:
                if type(known.get(factor)) not in (int, float):
                    raise ValueError(f"products: {name}: {factor} is {known.get(factor)!r}, expected a number.")
        products = {name: prod(known[factor] for factor in factors) for name, factors in self.products.items()}
        # a whole number may come as 4.0, and a batch has no 12.0 rows
        return values | {name: int(value) if value == int(value) else value for name, value in products.items()}
