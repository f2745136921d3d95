"""Published numbers from checked files, as lines of results, with model, source and protocol."""

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


class Weights(Strict):
    """Released weights in another format than transformers', with what `hfcomp convert` cannot read from the file.

    Attributes:
        at: Web page or folder with the weights.
        hub: Hub id of their repository.
        file: File name; empty if unknown, or if the repository has only one.
        layout: Kind of file: open_clip's Hub repository or training file, the latter with TSVLC's LoRA, a file with
            `model_state_dict`, or a transformers folder. Empty if hfcomp has no conversion.
        pretrained: open_clip's tag from which training started, which states the activation.
        license: License as stated, and for what; empty if none is stated.
        source: GitHub repository and commit from which these facts were read.
    """

    at: str = ""
    hub: str = ""
    file: str = ""
    layout: Literal["", "open_clip", "training", "lora", "model_state_dict", "transformers"] = ""
    pretrained: str | None = None
    license: str = ""
    source: str = ""


class PublishedModel(Strict):
    """A model that papers report.

    Attributes:
        hub: Hub ids of its weights in the transformers format.
        aliases: Other names of the model in papers.
        weights: Its weights if they are not on the Hub in that format.
    """

    hub: list[str] = []
    aliases: list[str] = []
    weights: Weights | None = None


class Column(Strict):
    """The line of results that corresponds to a table's column.

    Attributes:
        benchmark: Name on the command line, or the common prefix of several with the same title. For a mean over
            benchmarks, the place of its publication.
        subset: Subset or average; by default "all".
        metric: Metric as named in results.
        differs: Difference of its protocol from hfcomp's; empty if none.
    """

    benchmark: str
    subset: str = "all"
    metric: str
    differs: str = ""


class PublishedTable(Strict):
    """A table of a source.

    Attributes:
        table: Number of the table, or its file.
        unit: `percent`, or `fraction` for numbers as metrics define them.
        decimals: Number of printed decimals.
        protocol: Notes on the protocol that a reader must know.
        differs: Difference of the whole table's protocol from hfcomp's; empty if none.
        columns: Columns in the order of values.
        models: Values by model, one per column; null if the source has none.
        rows_differ: Difference of a row's protocol, by model.
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
    """A paper, or the results in a repository.

    Attributes:
        name: Short name for tables.
        source: Full reference with an arXiv id, or a repository and its commit.
        tables: Tables of the source.
    """

    name: str
    source: str
    tables: list[PublishedTable] = Field(min_length=1)


def read_models(path: Path = MODELS_FILE) -> dict[str, PublishedModel]:
    models: Mapping[str, PublishedModel] = parse(dict[str, PublishedModel], read_yaml(path), str(path))
    return dict(models)


def read_source(path: Path) -> Source:
    """Reads and checks the tables of a source."""
    source = parse(Source, read_yaml(path), str(path))
    for table in source.tables:
        where = f"{path}, {table.table}"
        for name in table.rows_differ:
            if name not in table.models:
                raise ValueError(f"{where}: rows_differ names {name!r}, which is not among its models.")
        for name, values in table.models.items():
            if len(values) != len(table.columns):
                raise ValueError(f"{where}, {name}: found {len(values)} values, expected {len(table.columns)}.")
            for value in values:
                # More decimals than printed mean a typing error, or a value that is not in the table.
                if value is not None and round(value, table.decimals) != value:
                    raise ValueError(f"{where}, {name}: found {value}, expected at most {table.decimals} decimals.")
    return source


PERCENT = 100
SIGNED = "-1 to 1"
"""Unit note of metrics that may be negative."""


@dataclass(frozen=True)
class PublishedScore:
    """A published number.

    Attributes:
        model: Name in `models.yaml`.
        benchmark: Title as in lines of results. For a mean over benchmarks, the place of its publication.
        subset: Subset or average.
        metric: Metric as named in results.
        value: Value as in results; accuracies from 0 to 1.
        rounding: Maximum distance of the unrounded number from `value`: half a unit of the last printed decimal.
        decimals: Decimals of `shown`.
        source: Short name of the source.
        reference: Full reference of the source.
        table: Table in the source.
        protocol: Notes on the protocol that a reader must know.
        differs: Difference of its protocol from hfcomp's; empty if none.
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
        """The number as results show it, with the published decimals."""
        return f"{metric_unit(self.metric).factor * self.value:.{self.decimals}f}"

    @property
    def place(self) -> str:
        """Short source and table."""
        return f"{self.source}, {self.table}"


def published_scores(name: str | None = None) -> tuple[PublishedScore, ...]:
    """Returns all published numbers, or those of a benchmark by its name or title, in the order of the files."""
    if name is None:
        return _scores()
    own = benchmarks().get(name)
    title = name if own is None else own.title
    return tuple(score for score in _scores() if score.benchmark == title)


@cache
def _scores() -> tuple[PublishedScore, ...]:
    return read_scores(FOLDER / "tables", published_models())


def read_scores(folder: Path, models: Mapping[str, PublishedModel]) -> tuple[PublishedScore, ...]:
    """Reads the published numbers in the files of a folder."""
    paths = sorted(folder.glob("*.yaml"))
    return tuple(score for path in paths for score in _source_scores(read_source(path), str(path), models))


def _source_scores(source: Source, path: str, models: Mapping[str, PublishedModel]) -> Iterator[PublishedScore]:
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
    """Returns a number as in results, the maximum rounding error, and the decimals that results show."""
    unit = metric_unit(metric)
    scale = PERCENT if table.unit == "percent" else 1
    value, lowest = printed / scale, -1 if unit.note == SIGNED else 0
    if not lowest <= value <= 1:
        raise ValueError(
            f"{where}: found {printed} in {table.unit} of {metric}, expected {lowest * scale} to {scale}."
        )
    # A number printed in percent and shown as a fraction has two more decimals; the reverse has two fewer.
    moved = (scale == PERCENT) - (unit.factor == PERCENT)
    return value, 0.5 * 10.0**-table.decimals / scale, max(0, table.decimals + 2 * moved)


def _line(column: Column, where: str) -> tuple[str, str, str]:
    if column.benchmark in MEANS:
        names = [mean.name for mean in MEANS[column.benchmark]]
        _expect(column.metric, names, f"{where}: {column.benchmark}: metric")
        return column.benchmark, ALL_ITEMS, column.metric
    # Checked against the benchmarks' declarations, because a misspelled line would silently never be compared.
    known = _benchmarks(column.benchmark, where)
    _expect(column.subset, known[0].subset_names, f"{where}: {column.benchmark}: subset")
    _expect(column.metric, known[0].protocol.metric_names, f"{where}: {column.benchmark}: metric")
    return known[0].title, column.subset, column.metric


def _benchmarks(name: str, where: str) -> list[Benchmark]:
    every = benchmarks()
    if name not in every and not any(known.startswith(f"{name}_") for known in every):
        raise ValueError(f"{where}: unknown benchmark {name!r}.{nearest(name, [*every, *MEANS])}")
    named = find_benchmarks([name])
    titles = list(dict.fromkeys(benchmark.title for benchmark in named))
    # One name may stand for several benchmarks, as `vtab` does, but a published number belongs to one title.
    if len(titles) > 1:
        raise ValueError(
            f"{where}: {name!r} stands for several benchmarks: {', '.join(titles)}. Use the name of one of them."
        )
    return named


def _expect(value: str, known: list[str] | tuple[str, ...], where: str) -> None:
    if value not in known:
        raise ValueError(f"{where}: found {value!r}, expected one of {', '.join(known)}.{nearest(value, known)}")


@cache
def published_models() -> dict[str, PublishedModel]:
    """Returns the models with published numbers, by name."""
    models = read_models()
    owners: dict[str, str] = {}
    for name, model in models.items():
        # Users write any of these, so each must identify one model.
        for word in (name, *model.aliases, *model.hub):
            if owners.setdefault(_key(word), name) != name:
                raise ValueError(f"models.yaml: {word!r} belongs to both {owners[_key(word)]!r} and {name!r}.")
    return models


def published_model(*names: str | None) -> str | None:
    """Returns the published model for the first known name among Hub ids and names that a user gave.

    Case, spaces, hyphens and other punctuation do not matter: `negclip` is NegCLIP.
    """
    owners = _owners()
    return next((owners[_key(name)] for name in names if name and _key(name) in owners), None)


@cache
def _owners() -> dict[str, str]:
    models = published_models()
    return {_key(word): name for name, model in models.items() for word in (name, *model.aliases, *model.hub)}


def _key(name: str) -> str:
    """Returns a Hub id without case; for another name, only its letters, digits and plus signs."""
    folded = name.casefold()
    is_hub_id = folded.count("/") == 1 and " " not in folded
    # Punctuation distinguishes Hub ids; in names from papers, it is typography.
    return folded if is_hub_id else re.sub(r"[^\w+]|_", "", folded)
