"""A kind of dataset that `hfcomp build` makes, and how kinds are found; docs/adding_a_builder.md adds one.

This module and those of `KINDS` load no large library: the command line reads them for its help.
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

# Entry point group under which other packages register their builders, by the kind that they make.
ENTRY_POINTS = "hfcomp.builders"
# Our own builders. A table instead of entry points, which a checkout that is not installed would not have.
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
    """Counts of stages whose names begin alike.

    Attributes:
        prefix: Beginning of the names.
        title: Title of their table in cards and reports.
        column: Header of the names.
        also: Names of counts that begin otherwise but belong to the table, with what it calls them.
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
        found = {name.removeprefix(self.prefix): n for name, n in counts.items() if name.startswith(self.prefix)}
        found |= {label: counts[name] for name, label in self.also if name in counts}
        return [[name.replace("_", " "), f"{number:,}"] for name, number in found.items()]


MADE = Counts("negatives: ", "negatives", "kind")
FLAGGED = Counts("flagged: ", "negatives flagged, not dropped", "reason")
CAPTIONS = Counts("captions: ", "captions", "captions")
IMAGES = Counts("images: ", "images", "images")
DROPPED = Counts("dropped: ", "texts dropped", "reason")
# A question that is repeated counts each time.
ANSWERS = Counts("answers refused: ", "answers of a language model refused, counted each time", "reason")
# Counts for which a builder names no table.
OTHERS = Counts("", "other counts", "count")

OTHER_COLUMNS = (
    "Other columns are the source's; an `image_id` that it lacks is made from its images, equal in rows of one "
    "image. Its images are its own bytes. Concreteness ratings are not included, as "
    "their license forbids it: hfcomp joins them from your copy when a set is loaded."
)


@dataclass(frozen=True)
class CardText:
    """What the card of a dataset says of its kind.

    Attributes:
        columns: What each column holds.
        others: Sentences about the other columns.
        header: Header of the examples; empty for a kind without.
        reads: Columns of the examples.
        cells: From the values of these columns in a row to rows of the examples.
        counts: Tables of counts, in this order; what is in none of them comes last.
        tables: Further tables from a manifest with `counts` and `set_aside`.
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
        options: Class of the options, whose `what` names the kind. The fields are the command's options, their
            descriptions its help.
        card: Text of the card.
        build: `module:Class` of the `hfcomp.factory.build.DatasetBuild` that makes a dataset. A name, so that the
            libraries it needs are loaded only to build.
        configs: Configurations with a description each, the default one first; empty if a dataset has only one.
    """

    options: type[BuildOptions]
    card: CardText
    build: str
    configs: Mapping[str, str] = field(default_factory=dict)

    def dataset_class(self) -> type[BuiltDataset]:
        """The class with which `datasets` prepares or streams a built dataset of this kind."""
        from hfcomp.data.built_sets.builders import builder_class

        return builder_class(self.card.title, self.options.what, self.card.about, self.configs)


@cache
def builders() -> dict[str, Builder]:
    """All builders by the kind that they make: ours, then those of installed packages."""
    ours = {name: resolve_name(place) for name, place in KINDS.items()}
    return ours | load_plugins(ENTRY_POINTS, Builder, ours, lambda builder: builder.options.what)


def find_builder(what: str) -> Builder:
    """The builder of a kind."""
    known = builders()
    if what not in known:
        raise ValueError(f"no builder makes {what!r}.{nearest(what, known)} Known: {', '.join(known)}.")
    return known[what]
