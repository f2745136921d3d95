"""Builders: the kinds of dataset that `hfcomp build` makes, and their registry. See docs/adding_a_builder.md.

This module and the modules in `KINDS` load no large library, because the command line imports them for its help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from hfcomp.factory.options import BuildOptions
from hfcomp.plugins import load_plugins
from hfcomp.reading import nearest

if TYPE_CHECKING:
    from hfcomp.data.built_sets.builders import BuiltDataset
    from hfcomp.reporting.report import Table

# Entry point group in which other packages register their builders under the kind that they make.
ENTRY_POINTS = "hfcomp.builders"
# Our own builders are listed here and not as entry points, because a checkout that is not installed has none.
KINDS = {
    "negatives": "hfcomp.factory.kinds:NEGATIVES",
    "concepts": "hfcomp.factory.kinds:CONCEPTS",
    "neighbors": "hfcomp.factory.kinds:NEIGHBORS",
    "inpaintcoco": "hfcomp.factory.inpaintcoco.options:INPAINTCOCO",
    "concretebatch": "hfcomp.factory.concretebatch.options:CONCRETEBATCH",
    "magic": "hfcomp.factory.magic.options:MAGIC",
}


@dataclass(frozen=True)
class Counts:
    """Stage counts whose names share a prefix.

    Attributes:
        prefix: Common prefix of the names.
        title: Title of their table in cards and reports.
        column: Header of the column of names.
        also: Names of other counts that belong to the table, each with its label there.
    """

    prefix: str
    title: str
    column: str
    also: tuple[tuple[str, str], ...] = ()

    def __call__(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def has(self, name: str) -> bool:
        return name.startswith(self.prefix) or name in dict(self.also)

    def rows(self, counts: Mapping[str, int]) -> list[list[str]]:
        """The rows of the table; none if nothing was counted."""
        numbers = {name.removeprefix(self.prefix): n for name, n in counts.items() if name.startswith(self.prefix)}
        numbers |= {label: counts[name] for name, label in self.also if name in counts}
        return [[name.replace("_", " "), f"{number:,}"] for name, number in numbers.items()]


MADE = Counts("negatives: ", "negatives", "kind")
FLAGGED = Counts("flagged: ", "negatives flagged, not dropped", "reason")
CAPTIONS = Counts("captions: ", "captions", "captions")
IMAGES = Counts("images: ", "images", "images")
DROPPED = Counts("dropped: ", "texts dropped", "reason")
# A repeated question is counted each time.
ANSWERS = Counts("answers refused: ", "rejected answers of a language model, counted each time", "reason")
# Counts for which a builder names no table.
OTHERS = Counts("", "other counts", "count")

OTHER_COLUMNS = (
    "Other columns come from the source. A missing `image_id` is derived from the images and is equal in rows with "
    "the same image. Images are copied byte for byte. Concreteness ratings are not included, because their license "
    "forbids it; hfcomp joins them from your copy when the dataset is loaded."
)


@dataclass(frozen=True)
class CardText:
    """The part of a dataset card that depends on the builder.

    Attributes:
        columns: Description of each column.
        others: Sentences about the other columns.
        header: Header of the table of examples; empty for no examples.
        reads: Columns that the examples are made from.
        cells: Function from a row's values in these columns to rows of the table.
        counts: Tables of counts, in this order. Counts in none of them come last.
        tables: Function that makes further tables from a manifest with `counts` and `set_aside`.
    """

    title: str
    about: str
    columns: Mapping[str, str]
    others: str = OTHER_COLUMNS
    header: Sequence[str] = ()
    reads: Sequence[str] = ()
    cells: Callable[..., list[Sequence[str]]] | None = None
    counts: Sequence[Counts] = ()
    tables: Callable[[Mapping[str, Any]], list[Table]] = lambda manifest: []


@dataclass(frozen=True)
class Builder:
    """A kind of dataset.

    Attributes:
        options: Class of options. Its `what` names the kind; its fields are the command's options, and their
            descriptions the help.
        card: Text of the card.
        build: `module:Class` of the `hfcomp.factory.build.DatasetBuild` that makes a dataset. It is a name because the
            libraries that the class needs are loaded only for a build.
        configs: Description of each configuration, the default first; empty if a dataset has only one.
    """

    options: type[BuildOptions]
    card: CardText
    build: str
    configs: Mapping[str, str] = field(default_factory=dict)

    def dataset_class(self) -> type[BuiltDataset]:
        """The class that lets `datasets` prepare or stream a built dataset of this kind."""
        from hfcomp.data.built_sets.builders import builder_class

        return builder_class(self.card.title, self.options.what, self.card.about, self.configs)


@cache
def builders() -> dict[str, Builder]:
    """All builders by kind: ours, then those of installed packages."""
    ours = {name: resolve_name(place) for name, place in KINDS.items()}
    return ours | load_plugins(ENTRY_POINTS, Builder, ours, lambda builder: builder.options.what)


def find_builder(what: str) -> Builder:
    """The builder of a kind."""
    known = builders()
    if what not in known:
        raise ValueError(f"no builder makes {what!r}.{nearest(what, known)} Known: {', '.join(known)}.")
    return known[what]
