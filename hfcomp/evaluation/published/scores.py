"""Published numbers in checked files, as lines of results: whose, of which line, from where, by which protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from hfcomp.evaluation.benchmarks import benchmarks, find_benchmarks
from hfcomp.evaluation.benchmarks.means import MEANS
from hfcomp.evaluation.spec import ALL_ITEMS, Benchmark
from hfcomp.metrics.units import metric_unit
from hfcomp.reading import nearest, read_yaml
from hfcomp.schemas import Strict, parse

FOLDER = Path(__file__).parent
MODELS_FILE = FOLDER / "models.yaml"


class PublishedModel(Strict):
    """A model that papers report.

    Attributes:
        hub: Hub ids of its weights in the format of transformers.
        aliases: other names of it in papers.
        weights: where its weights are if they are not on the Hub in that format.
    """

    hub: list[str] = []
    aliases: list[str] = []
    weights: str = ""


class Column(Strict):
    """The line of results that a column of a table is.

    Attributes:
        benchmark: its name on the command line, several of one title by what their names begin with; of a mean over
            benchmarks where it is published.
        subset: or average; by default "all".
        metric: as results name it.
        differs: how its protocol differs from that of hfcomp; empty where it does not.
    """

    benchmark: str
    subset: str = "all"
    metric: str
    differs: str = ""


class PublishedTable(Strict):
    """A table of a source.

    Attributes:
        table: its number, or the file that it is in.
        unit: `percent`, or `fraction` for numbers as metrics define them.
        decimals: that are printed.
        protocol: what a reader has to know of how it was made.
        differs: how the protocol of all its numbers differs from that of hfcomp; empty where it does not.
        columns: in the order of values.
        models: name to its values, one a column; nothing where the source has none.
        rows_differ: name to how its row differs.
    """

    table: str
    unit: Literal["percent", "fraction"]
    decimals: int = Field(ge=0, le=6)
    protocol: str = ""
    differs: str = ""
    columns: list[Column] = Field(min_length=1)
    models: dict[str, list[float | None]]
    rows_differ: dict[str, str] = {}


class Source(Strict):
    """A paper, or the results that a repository holds.

    Attributes:
        name: short, for tables.
        source: in full, with an arXiv id, or a repository and its commit.
    """

    name: str
    source: str
    tables: list[PublishedTable] = Field(min_length=1)


def read_models(path: Path = MODELS_FILE) -> dict[str, PublishedModel]:
    models: Mapping[str, PublishedModel] = parse(dict[str, PublishedModel], read_yaml(path), str(path))
    return dict(models)


def read_source(path: Path) -> Source:
    """The tables of a source."""
    found = parse(Source, read_yaml(path), str(path))
    for table in found.tables:
        where = f"{path}, {table.table}"
        for name in table.rows_differ:
            if name not in table.models:
                raise ValueError(f"{where}: rows_differ names {name!r}, which is not among its models.")
        for name, values in table.models.items():
            if len(values) != len(table.columns):
                raise ValueError(f"{where}, {name}: found {len(values)} values, expected {len(table.columns)}.")
            for value in values:
                # More decimals than are printed mean a typing error, or a value that the table does not hold.
                if value is not None and round(value, table.decimals) != value:
                    raise ValueError(f"{where}, {name}: found {value}, expected at most {table.decimals} decimals.")
    return found


PERCENT = 100
SIGNED = "-1 to 1"
"""The note of the unit of metrics that may be negative."""


@dataclass(frozen=True)
class PublishedScore:
    """A published number.

    Attributes:
        model: its name in `models.yaml`.
        benchmark: the title, as lines of results have it; of a mean over benchmarks where it is published.
        subset: or average.
        metric: as results name it.
        value: as results have it, accuracies from 0 to 1.
        rounding: how far the number before rounding may be from `value`: half a unit of the last printed decimal.
        decimals: of `shown`.
        source: short.
        reference: the source in full.
        table: in the source.
        protocol: what a reader has to know of how it was made.
        differs: how its protocol differs from that of hfcomp; empty where it does not.
    """

    model: str
    benchmark: str
    subset: str
    metric: str
    value: float
    rounding: float
    decimals: int
    source: str
    reference: str
    table: str
    protocol: str = ""
    differs: str = ""

    @property
    def line(self) -> tuple[str, str, str]:
        """Benchmark, subset and metric."""
        return self.benchmark, self.subset, self.metric

    @property
    def shown(self) -> str:
        """As results show it, with the decimals that are published."""
        return f"{metric_unit(self.metric).factor * self.value:.{self.decimals}f}"

    @property
    def place(self) -> str:
        """Source and table, short."""
        return f"{self.source}, {self.table}"


def published_scores(name: str | None = None) -> tuple[PublishedScore, ...]:
    """All published numbers, or those of a benchmark by its name or title, in the order of the files."""
    if name is None:
        return _scores()
    own = benchmarks().get(name)
    title = name if own is None else own.title
    return tuple(one for one in _scores() if one.benchmark == title)


@cache
def _scores() -> tuple[PublishedScore, ...]:
    return read_scores(FOLDER / "tables", published_models())


def read_scores(folder: Path, models: Mapping[str, PublishedModel]) -> tuple[PublishedScore, ...]:
    """The numbers in the files of a folder."""
    return tuple(
        one for path in sorted(folder.glob("*.yaml")) for one in _of_source(read_source(path), str(path), models)
    )


def _of_source(source: Source, path: str, models: Mapping[str, PublishedModel]) -> Iterator[PublishedScore]:
    for table in source.tables:
        where = f"{path}, {table.table}"
        lines = [_line(column, where) for column in table.columns]
        for name, values in table.models.items():
            if name not in models:
                raise ValueError(f"{where}: unknown model {name!r}.{nearest(name, models)} Add it to models.yaml.")
            for column, line, printed in zip(table.columns, lines, values, strict=True):
                if printed is not None:
                    value, rounding, decimals = _value(printed, table, line[2], f"{where}, {name}")
                    differs = " ".join(filter(None, (column.differs, table.differs, table.rows_differ.get(name))))
                    facts = (source.name, source.source, table.table, table.protocol, differs)
                    yield PublishedScore(name, *line, value, rounding, decimals, *facts)


def _value(printed: float, table: PublishedTable, metric: str, where: str) -> tuple[float, float, int]:
    """A number as results have it, how far rounding may have moved it, and its decimals as results show it."""
    unit = metric_unit(metric)
    scale = PERCENT if table.unit == "percent" else 1
    value, lowest = printed / scale, -1 if unit.note == SIGNED else 0
    if not lowest <= value <= 1:
        raise ValueError(
            f"{where}: found {printed} in {table.unit} of {metric}, expected {lowest * scale} to {scale}."
        )
    # A number that is printed in percent and shown as a fraction has two more decimals. The reverse has two fewer.
    moved = (scale == PERCENT) - (unit.factor == PERCENT)
    return value, 0.5 * 10.0**-table.decimals / scale, max(0, table.decimals + 2 * moved)


def _line(column: Column, where: str) -> tuple[str, str, str]:
    if column.benchmark in MEANS:
        names = [one.name for one in MEANS[column.benchmark]]
        _expect(column.metric, names, f"{where}: {column.benchmark}: metric")
        return column.benchmark, ALL_ITEMS, column.metric
    # Checked against what benchmarks declare: a misspelled line would silently never be compared.
    known = _benchmarks(column.benchmark, where)
    _expect(column.subset, known[0].subset_names, f"{where}: {column.benchmark}: subset")
    _expect(column.metric, known[0].protocol.metric_names, f"{where}: {column.benchmark}: metric")
    return known[0].title, column.subset, column.metric


def _benchmarks(name: str, where: str) -> list[Benchmark]:
    every = benchmarks()
    if name not in every and not any(one.startswith(f"{name}_") for one in every):
        raise ValueError(f"{where}: unknown benchmark {name!r}.{nearest(name, [*every, *MEANS])}")
    found = find_benchmarks([name])
    titles = list(dict.fromkeys(one.title for one in found))
    # One name may stand for several benchmarks, as `vtab` does, but a published number belongs to one title.
    if len(titles) > 1:
        raise ValueError(f"{where}: {name!r} names benchmarks of several titles: {', '.join(titles)}. Name one.")
    return found


def _expect(found: str, known: list[str] | tuple[str, ...], where: str) -> None:
    if found not in known:
        raise ValueError(f"{where}: found {found!r}, expected one of {', '.join(known)}.{nearest(found, known)}")


@cache
def published_models() -> dict[str, PublishedModel]:
    """The models that have published numbers, by name."""
    models = read_models()
    owners: dict[str, str] = {}
    for name, model in models.items():
        # Users write any of these, so each must stand for one model.
        for word in (name, *model.aliases, *model.hub):
            if owners.setdefault(_key(word), name) != name:
                raise ValueError(f"models.yaml: {word!r} is of {owners[_key(word)]!r} and of {name!r}.")
    return models


def published_model(*names: str | None) -> str | None:
    """The published model that a Hub id, or a name that a user gave, stands for; the first of several that does.

    Case, spaces, hyphens and other signs do not matter: `negclip` is NegCLIP.
    """
    owners = _owners()
    return next((owners[_key(name)] for name in names if name and _key(name) in owners), None)


@cache
def _owners() -> dict[str, str]:
    models = published_models()
    return {_key(word): name for name, one in models.items() for word in (name, *one.aliases, *one.hub)}


def _key(name: str) -> str:
    """A Hub id as it is but for case; of another name the letters, digits and plus signs."""
    folded = name.casefold()
    is_hub_id = folded.count("/") == 1 and " " not in folded
    # Punctuation tells Hub ids apart. In names from papers it is typography.
    return folded if is_hub_id else re.sub(r"[^\w+]|_", "", folded)
