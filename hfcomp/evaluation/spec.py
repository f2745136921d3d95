"""What a benchmark is: where its data is found, how an item is scored, and which averages of it are in use."""

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

if TYPE_CHECKING:  # a second to import, which whoever only compares stored results need not wait for
    from datasets import Dataset

COMPOSITIONAL = "compositional"
GENERAL = "general"
SUITES = (COMPOSITIONAL, GENERAL)
ASPECTS = {COMPOSITIONAL: "composition", GENERAL: "general"}
"""What a suite's lines are called in results: what a method is to gain, and what it may forget."""

ROWS_AT_A_TIME = 1024  # that are scored together: memory does not grow with the number of items
NAMES = ("item", "subset", "image_id")
"""Columns that name a row: what they miss is filled in."""
ALL_ITEMS = "all"
"""The subset of a benchmark that has no subsets."""
PART = " (part)"
"""What the title of a benchmark ends in of which images are missing, so that its scores are of a part."""
FAILED = "failed: "
"""What the reason of a benchmark begins with that could not be scored though its data is there."""
EMPTY_CAPTION, NO_IMAGE = "empty caption", "image missing"


class Unavailable(Exception):
    """The data of a benchmark is unavailable here: it is skipped and shown with the reason and how to get it.

    Args:
        reason: what was found, such as "gated: your token has no access".
        how_to_fix: what to do about it.
    """

    def __init__(self, reason: str, how_to_fix: str) -> None:
        super().__init__(f"{reason} {how_to_fix}")
        self.reason = reason
        self.how_to_fix = how_to_fix


@dataclass(frozen=True)
class Origin:
    """What was really read.

    Attributes:
        place: a folder, or the id of a dataset on the Hub.
        commit: the Hub's commit hash; `None` for a folder, identified by the hash of its rows (`items` in the
            results).
        pools: the same of what images were joined from.
    """

    place: str
    commit: str | None = None
    pools: tuple[Origin, ...] = ()


@dataclass(frozen=True)
class BenchmarkData:
    """The rows of a benchmark, read and checked, images undecoded.

    Attributes:
        rows: the columns that the protocol reads, by the standard column names, besides `item` (unique within
            its `subset`), `subset` and `image_id` (what intervals draw). A missing one of these three is filled in:
            the row's number, "all", and the image's own file name, else a hash of its bytes, else the item. A
            column `left_out` says of a row why it is not scored, and is empty or `None` where it is.
        origin: what was read.
        images: cells of image columns outside `rows`, as `decode_image` takes them.
        left_out: rows that are not scored, by reason.
        unsolvable: rows with a negative that reads as the caption does, which no scorer can get right.
        texts_alone: rows without an image, of which only the texts are read.
        classes: names for zero-shot classification and probes, by label.
        templates: prompts with `{c}` for the class.
        prompts: for classification by several attributes: attribute to class to its prompts.
        train: rows that a probe is fitted on.
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
        """Each of `NAMES` of all rows, once they are filled in."""
        return {name: np.asarray(column_values(self.rows, name), dtype=object) for name in NAMES}

    def cells(self, column: str) -> Sequence[Any]:
        """The cells of a column of images."""
        return self.images[column] if column in self.images else self.rows[column]


@dataclass(frozen=True)
class Folders:
    """Local data folders.

    Attributes:
        root: a folder with a sub-folder for each benchmark or set of images, by its name.
        own: folders of single ones, by name; they go before the root's.
        asked: the names that were looked for so far: one of `own` that is not among them is misspelled, or not needed.
        texts_suffice: whether a row counts without its image, and images that cannot be had are no error.
    """

    root: Path | None = None
    own: Mapping[str, Path] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set, compare=False)
    texts_suffice: bool = False

    def of(self, name: str) -> Path | None:
        """The folder of a benchmark or a set of images, if there is one."""
        self.asked.add(name)
        if name in self.own:
            return self.own[name]
        # A folder that the user named for this benchmark took precedence over the root.
        inside = None if self.root is None else self.root / name
        return inside if inside is not None and inside.is_dir() else None

    def check_used(self, option: str) -> None:
        """Checks that every folder of `own` was looked for, once all benchmarks have been loaded.

        Args:
            option: what the error calls them.

        Raises:
            ValueError: for one that was not, with the nearest name that was.
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
    """Folders as a user names them, which have to be there: one with a sub-folder each, or some by name.

    With folders by name, `root` has those of the other names. `option` is what errors call `given`.
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
    """Folders by name, from entries `NAME=DIR` with variables such as `$HOME`; `option` is what errors call them."""
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
    """A form of a benchmark's data; by default one that no folder holds and that is not on the Hub.

    Attributes:
        layout: in words, for errors.
        is_own: whether it is the user's own, so that something wrong in it is always an error.
    """

    layout: str
    is_own: ClassVar[bool] = False

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        """The items, when the folder holds this form, else `None`; images may be in other `folders`.

        Raises:
            ValueError: when the folder holds this form and something in it is wrong.
        """
        return None

    def remote(self, folders: Folders) -> BenchmarkData:
        """The items from the Hub or the authors' repository.

        Raises:
            Unavailable: when it does not have them.
        """
        raise Unavailable("", "")


@dataclass(frozen=True)
class Measured:
    """One metric of a benchmark, an entry per item or query.

    Attributes:
        metric: its name in tables.
        value: `[n]`; 0 or 1 where items are right or wrong. Ties are wrong.
        tie: `[n]` bool: would be right if ties were wins, and is not.
        chance: of a random scorer, one for all or `[n]`; NaN where there is none.
        rows: `[n]`, the row of `BenchmarkData.rows` behind each entry; `None`: entry i is row i.
        items: `[n]`, names where a row has several entries; `None`: the rows' own.
        strata: `[n]`, where the metric is the mean of the means of these; `None`: the mean over entries.
        aspect: one of `ASPECTS`' values; `None`: that of the benchmark's suite.
        subset: of all entries; `None`: that of each row.
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
    """How items are scored; the classes are in `hfcomp.evaluation.protocols`.

    Attributes:
        images: columns of images that it reads.
        texts: columns of texts or lists of texts that it reads.
        optional_texts: further ones, which the data may lack, and a row may have nothing in.
        needs_images: whether a row without an image cannot be scored at all.
        all_pairs: whether it can be scored from the scores of all images with all texts, without embeddings.
        beyond_pairs: which of its metrics `pairs` do not give.
        row_pairs: what `pairs` gives where it is the same for all items.
        metric_names: every metric that `score` may give; empty where that is not declared, and then no published
            number fits.
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
        """Columns of images and of texts whose scores, row by row, are enough for its metrics; by default none.

        A model that scores pairs one by one, or a file of scores, can do such a benchmark. `score` then gets a
        `hfcomp.evaluation.pairs.items.PairedItems`.
        """
        return self.row_pairs

    def prompts(self, items: BenchmarkData) -> list[str]:
        """Texts to encode besides those of the rows, such as class prompts; by default none."""
        return []

    def notes(self, items: BenchmarkData) -> Iterable[str]:
        """What a reader of the numbers has to know about how these items are scored; by default nothing."""
        return ()

    def text_choice(self, items: BenchmarkData) -> ScoringProtocol | None:
        """The protocol of the metrics in which an image chooses among texts of its own row.

        Those are the metrics that a score of texts alone can decide, see `hfcomp.evaluation.blind`; by default none.
        """
        return None

    @abstractmethod
    def score(self, embedded: Any) -> Iterable[Measured]:
        """Outcomes of every metric, from a `hfcomp.evaluation.encoding.embedded.EmbeddedItems`, or see `pairs`."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of the field.

    Attributes:
        name: on the command line.
        title: in tables. Benchmarks of one title are parts of one: they have averages in common, and subsets of their
            own.
        suite: `COMPOSITIONAL` or `GENERAL`.
        protocol: how an item is scored.
        data: forms of the data, in order of preference.
        paper: who made it, with an arXiv id or venue.
        license: of the data, if known.
        obtain: how to get it, for whoever lacks it.
        averages: means over subsets that are in use.
        subsets: names of subsets, of which none is needed where the averages name them, or all items are one.
        gated: whether the Hub asks for consent first.
        folder: name of a folder of data that it shares with other benchmarks; one of its own name goes before it.
        in_suites: whether a suite has it; what fetches hundreds of GB or computes for a day runs when it is named.
        synthetic: whether its images are synthetic, so that results do not transfer to photographs.
        version: raised with any change that changes a number.
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
        """The subsets and averages that its lines may have; "all" where it declares none."""
        parts = [part for average in self.averages for part in average.parts]
        declared = (*(average.name for average in self.averages), *parts, *self.subsets)
        return tuple(dict.fromkeys(declared)) or (ALL_ITEMS,)


def with_columns(rows: Dataset, columns: Mapping[str, Sequence[Any]], drop: Sequence[str] = ()) -> Dataset:
    """Rows whose columns of these names are replaced, or added at the end; those in `drop` are gone."""
    rows = rows.remove_columns([name for name in (*columns, *drop) if name in rows.column_names])
    for name, values in columns.items():
        rows = rows.add_column(name, values)
    return rows


def column_values(rows: Dataset, name: str) -> list[Any]:
    """All values of a column, which are those of `rows[name][:]`.

    `datasets` copies the description of all columns for each one that is read so: milliseconds, where the texts of a
    thousand rows take one. Images and rows in another order are left to it.
    """
    from datasets.features.features import require_decoding

    feature = (rows.info.features or {}).get(name)
    if feature is None or require_decoding(feature) or rows.format["type"] is not None or rows._indices is not None:
        return rows[name][:]
    return rows.data.column(name).to_pylist()
