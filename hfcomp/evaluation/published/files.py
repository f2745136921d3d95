"""The files of published numbers: the models, and the tables of each source. Each is checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from hfcomp.reading import read_yaml
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
        tables: of it.
    """

    name: str
    source: str
    tables: list[PublishedTable] = Field(min_length=1)


def read_models(path: Path = MODELS_FILE) -> dict[str, PublishedModel]:
    """The models by name.

    Raises:
        ValueError: for a file that is not as `PublishedModel` describes, with the place in it.
    """
    models: Mapping[str, PublishedModel] = parse(dict[str, PublishedModel], read_yaml(path), str(path))
    return dict(models)


def read_source(path: Path) -> Source:
    """The tables of a source.

    Raises:
        ValueError: for a file that is not as `Source` describes, rows of another length than the columns, or a value
            with more decimals than are printed, with the place in it.
    """
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
                if value is not None and round(value, table.decimals) != value:
                    raise ValueError(f"{where}, {name}: found {value}, expected at most {table.decimals} decimals.")
    return found
