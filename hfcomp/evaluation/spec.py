"""The specification of a benchmark: sources of its data, scoring of an item, and averages over subsets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hfcomp.reading import expand_variables, nearest
from hfcomp.statistics.average import Average

if TYPE_CHECKING:  # takes a second to import, which comparing stored results does not need
    from datasets import Dataset

COMPOSITIONAL = "compositional"
GENERAL = "general"
SUITES = (COMPOSITIONAL, GENERAL)
ASPECTS = {COMPOSITIONAL: "composition", GENERAL: "general"}
"""Names of the suites' lines in results: abilities that a method should gain, and those that it may forget."""

ROWS_AT_A_TIME = 1024  # rows scored together, so memory does not grow with the number of items
NAMES = ("item", "subset", "image_id")
"""Columns that name a row. Missing ones are filled in."""
ALL_ITEMS = "all"
"""Name of the only subset of a benchmark without subsets."""
PART = " (part)"
"""Suffix of a benchmark's title if images are missing, so its scores cover only a part of it."""
FAILED = "failed: "
"""Prefix of the reason why a benchmark could not be scored although its data is available."""
EMPTY_CAPTION, NO_IMAGE = "empty caption", "image missing"


class Unavailable(Exception):
    """A benchmark's data is unavailable. The benchmark is skipped and listed with the reason and how to get the data.

    Args:
        reason: Problem, such as "gated: your token has no access".
        how_to_fix: What to do about it.
    """

    def __init__(self, reason: str, how_to_fix: str) -> None:
        super().__init__(f"{reason} {how_to_fix}")
        self.reason = reason
        self.how_to_fix = how_to_fix


@dataclass(frozen=True)
class Origin:
    """The source that was actually read.

    Attributes:
        place: Folder, or Hub id of a dataset.
        commit: Commit hash on the Hub; `None` for a folder, which the hash of its rows identifies (`items` in the
            results).
        pools: Origins of the images that were joined to the rows.
    """

    place: str
    commit: str | None = None
    pools: tuple[Origin, ...] = ()


@dataclass(frozen=True)
class BenchmarkData:
    """The rows of a benchmark, read and checked, with undecoded images.

    Attributes:
        rows: Columns that the protocol reads, under the standard column names, plus `item` (unique within its
            `subset`), `subset` and `image_id` (the unit that intervals resample). If missing, these three are filled
            in: the row's number, "all", and the image's own file name, else a hash of its bytes, else the item. A
            column `left_out` gives the reason why a row is not scored; it is empty or `None` for scored rows.
        origin: Source that was read.
        images: Cells of image columns outside `rows`, as `decode_image` takes them.
        left_out: Number of rows that are not scored, by reason.
        unsolvable: Number of rows with a negative equal to the caption, which no scorer can get right.
        texts_alone: Number of rows without an image, of which only the texts are read.
        classes: Class names for zero-shot classification and probes, by label.
        templates: Prompts with `{c}` for the class.
        prompts: Prompts by attribute and class, for classification by several attributes.
        train: Rows that a probe is fitted on.
    """

    rows: Dataset
    origin: Origin
    images: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    prompts: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    train: BenchmarkData | None = None
    unsolvable: int = 0
    texts_alone: int = 0
    notes: tuple[str, ...] = ()

    @cached_property
    def names(self) -> dict[str, NDArray[np.object_]]:
        """The values of each of `NAMES` for all rows, after they were filled in."""
        return {name: np.asarray(column_values(self.rows, name), dtype=object) for name in NAMES}

    def cells(self, column: str) -> Sequence[Any]:
        """Returns the cells of an image column."""
        return self.images[column] if column in self.images else self.rows[column]


@dataclass(frozen=True)
class Folders:
    """Local data folders.

    Attributes:
        root: Folder with one subfolder per benchmark or image set, named after it.
        own: Folders of single benchmarks or image sets, by name. They take precedence over `root`.
        asked: Names that were searched for so far. A name in `own` but not here is misspelled or not needed.
        texts_suffice: Whether rows count without their image, so unavailable images are not an error.
    """

    root: Path | None = None
    own: Mapping[str, Path] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set, compare=False)
    texts_suffice: bool = False

    def of(self, name: str) -> Path | None:
        """Returns the folder of a benchmark or an image set, if any."""
        self.asked.add(name)
        if name in self.own:
            return self.own[name]
        # The root comes last: a folder that the user named for this benchmark takes precedence.
        inside = None if self.root is None else self.root / name
        return inside if inside is not None and inside.is_dir() else None

    def check_used(self, option: str) -> None:
        """Checks, after all benchmarks have been loaded, that every folder in `own` was searched for.

        Args:
            option: Name of the folders' option in the error.

        Raises:
            ValueError: If one was not; names the nearest name that was.
        """
        for name in self.own:
            if name not in self.asked:
                raise ValueError(
                    f"{option}: no requested benchmark has data named {name!r}.{nearest(name, self.asked)} "
                    f"Their data: {', '.join(sorted(self.asked))}."
                )


def data_folders(
    given: str | Path | Mapping[str, str | Path] | None = None, root: str | Path | None = None, *, option: str
) -> Folders:
    """Checks and returns the data folders that a user named: one with a subfolder per benchmark, or several by name.

    With folders by name, `root` contains the folders of all other names. Errors call `given` by the name `option`.
    """
    own = {name: Path(folder) for name, folder in given.items()} if isinstance(given, Mapping) else {}
    root = root if isinstance(given, Mapping) or given is None else given
    for name, folder in own.items():
        if not folder.is_dir():
            raise ValueError(f"{option}: found '{name}={folder}', expected NAME=DIR with a folder that exists.")
    if root is not None and not Path(root).is_dir():
        raise ValueError(f"{root} is not a folder; expected the folder with benchmark data.")
    return Folders(None if root is None else Path(root), own)


def parse_folders(entries: Iterable[str], *, option: str) -> dict[str, str]:
    """Parses entries `NAME=DIR`, with variables such as `$HOME`, into folders by name; errors call them `option`."""
    own: dict[str, str] = {}
    for text in entries:
        name, _, folder = expand_variables(text, option).partition("=")
        if not folder:
            raise ValueError(f"{option}: found {text!r}, expected NAME=DIR with a folder that exists.")
        if name in own:
            raise ValueError(f"{option}: found two folders for {name!r}, {own[name]} and {folder}. Pass one.")
        own[name] = folder
    return own


class Data:
    """A form of a benchmark's data. By default, no folder contains it and it is not on the Hub.

    Attributes:
        layout: Description of the layout for errors.
        is_own: Whether the data is the user's own, in which any mistake is an error.
    """

    layout: str
    is_own: ClassVar[bool] = False

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        """Reads the items, or returns `None` if the folder does not contain this form. Images may be in `folders`.

        Raises:
            ValueError: If the folder contains this form, but with a mistake.
        """
        return None

    def remote(self, folders: Folders) -> BenchmarkData:
        """Reads the items from the Hub or the authors' repository.

        Raises:
            Unavailable: If they are not there.
        """
        raise Unavailable("", "")


@dataclass(frozen=True)
class Measured:
    """Outcomes of one metric of a benchmark, with one entry per item or query.

    Attributes:
        metric: Name of the metric in tables.
        value: `[n]`; 0 or 1 if items are right or wrong. Ties are wrong.
        tie: `[n]` bool: whether the item is wrong only because ties are wrong.
        chance: Value of a random scorer, one for all entries or `[n]`; NaN if there is none.
        rows: `[n]`, the row of `BenchmarkData.rows` behind each entry; `None`: entry i is row i.
        items: `[n]`, names of entries if a row has several; `None`: the rows' own.
        strata: `[n]`, groups whose means the metric averages; `None`: the mean over entries.
        aspect: One of `ASPECTS`' values; `None`: that of the benchmark's suite.
        subset: Subset of all entries; `None`: that of each row.
    """

    metric: str
    value: NDArray[Any]
    tie: NDArray[np.bool_]
    chance: float | NDArray[np.floating]
    rows: NDArray[np.integer] | None = None
    items: Sequence[str] | None = None
    strata: NDArray[Any] | None = None
    aspect: str | None = None
    subset: str | None = None


class ScoringProtocol(ABC):
    """The way items are scored; subclasses are in `hfcomp.evaluation.protocols`.

    Attributes:
        images: Image columns that the protocol reads.
        texts: Columns of texts or lists of texts that it reads.
        optional_texts: Further text columns, which the data may lack and which may be empty in a row.
        needs_images: Whether a row without an image cannot be scored at all.
        all_pairs: Whether it can be scored from the scores of all images with all texts, without embeddings.
        beyond_pairs: Metrics of the protocol that `pairs` are not enough for.
        row_pairs: Result of `pairs` if it is the same for all items.
        metric_names: All metrics that `score` may return. If empty, they are not declared, and no published number
            matches.
    """

    images: ClassVar[tuple[str, ...]] = ("image",)
    texts: ClassVar[tuple[str, ...]] = ()
    optional_texts: ClassVar[tuple[str, ...]] = ()
    needs_images: ClassVar[bool] = True
    all_pairs: ClassVar[bool] = False
    beyond_pairs: ClassVar[str] = ""
    row_pairs: ClassVar[Sequence[tuple[str, str]]] = ()
    metric_names: Sequence[str] = ()

    def pairs(self, items: BenchmarkData) -> Sequence[tuple[str, str]]:
        """Returns image and text columns whose scores, row by row, are enough for the metrics; by default none.

        A model that scores pairs one by one, or a file of scores, can then be evaluated: `score` receives a
        `hfcomp.evaluation.pairs.items.PairedItems`.
        """
        return self.row_pairs

    def prompts(self, items: BenchmarkData) -> list[str]:
        """Returns texts to encode in addition to those of the rows, such as class prompts; by default none."""
        return []

    def notes(self, items: BenchmarkData) -> Iterable[str]:
        """Returns notes on the scoring of these items that a reader of the numbers must know; by default none."""
        return ()

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol | None:
        """Returns the protocol of the metrics in which an image chooses among texts of its own row; by default none.

        A score of only the texts can decide these metrics, see `hfcomp.evaluation.blind`.
        """
        return None

    @abstractmethod
    def score(self, embedded: Any) -> Iterable[Measured]:
        """Yields the outcomes of every metric for `hfcomp.evaluation.encoding.embedded.EmbeddedItems`; see `pairs`."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its name, data, protocol and averages.

    Attributes:
        name: Name on the command line.
        title: Title in tables. Benchmarks with the same title are parts of one benchmark: they share averages and have
            their own subsets.
        suite: `COMPOSITIONAL` or `GENERAL`.
        protocol: How an item is scored.
        data: Forms of the data, in order of preference.
        paper: Authors, with an arXiv id or venue.
        license: License of the data, if known.
        obtain: How to get the data.
        averages: Means over subsets that are in use.
        subsets: Names of subsets. Not needed if the averages name them or all items form one subset.
        gated: Whether the Hub asks for consent first.
        folder: Name of a data folder shared with other benchmarks. A folder with the benchmark's own name comes first.
        in_suites: Whether it runs in a suite. Benchmarks that download hundreds of GB or run for a day are not in one.
        synthetic: Whether its images are synthetic, so results do not transfer to photographs.
        version: Number that is raised with every change that changes a result.
    """

    name: str
    title: str
    suite: str
    protocol: ScoringProtocol
    data: tuple[Data, ...]
    paper: str
    license: str
    obtain: str
    averages: tuple[Average, ...] = ()
    subsets: tuple[str, ...] = ()
    gated: bool = False
    folder: str | None = None
    in_suites: bool = True
    synthetic: bool = False
    version: int = 1

    @property
    def subset_names(self) -> tuple[str, ...]:
        """The subsets and averages that its lines may have; "all" if it declares none."""
        parts = [part for average in self.averages for part in average.parts]
        declared = (*(average.name for average in self.averages), *parts, *self.subsets)
        return tuple(dict.fromkeys(declared)) or (ALL_ITEMS,)


def with_columns(rows: Dataset, columns: Mapping[str, Sequence[Any]], drop: Sequence[str] = ()) -> Dataset:
    """Replaces columns, or adds them at the end, and removes those in `drop`."""
    rows = rows.remove_columns([name for name in (*columns, *drop) if name in rows.column_names])
    for name, values in columns.items():
        rows = rows.add_column(name, values)
    return rows


def column_values(rows: Dataset, name: str) -> list[Any]:
    """Returns all values of a column, as `rows[name][:]` does, but faster.

    `datasets` copies the description of all columns for every column it reads, which takes milliseconds, although the
    texts of a thousand rows take one. Images and rows in another order are still read by `datasets`.
    """
    from datasets.features.features import require_decoding

    feature = (rows.info.features or {}).get(name)
    if feature is None or require_decoding(feature) or rows.format["type"] is not None or rows._indices is not None:
        return rows[name][:]
    return rows.data.column(name).to_pylist()
