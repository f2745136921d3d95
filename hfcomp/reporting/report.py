"""A report as plain data: texts, tables and figures in sections, which know nothing of what was run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hfcomp.reporting.figures import Figure


@dataclass(frozen=True)
class Table:
    """A table of texts.

    `labels` is how many columns from the left are names; the others are numbers, which are never broken. `models` is
    how many columns from the right are of one model each: where their names do not fit, models become rows.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1
    models: int = 0


@dataclass(frozen=True)
class Picture:
    """An image that is no drawing: the name of its file, what it shows, and the content of the PNG."""

    name: str
    title: str
    content: bytes


@dataclass(frozen=True)
class Lines:
    """Texts of which each begins a line; if `whole`, the terminal does not break long ones: they can be copied."""

    texts: Sequence[str]
    title: str = ""
    whole: bool = False


Part = Table | Figure | Picture | Lines


@dataclass(frozen=True)
class Section:
    """A part of a report; a figure at the top has no title."""

    title: str
    parts: Sequence[Part]

    def shown(self) -> list[Part]:
        """The parts that are not empty."""
        return [part for part in self.parts if not _is_empty(part)]


@dataclass(frozen=True)
class Report:
    """What there is to say of a result.

    Attributes:
        title: of the report.
        caveat: what limits all that it says.
        verdict: sentences that a reader must not miss.
        sections: in this order, as far as there are such: gain beside forgetting, composition, general abilities,
            differences, ties, cost, data, models, how it was made.
        legend: paragraphs on how to read the numbers.
        notes: what a reader of the numbers has to know beside them.
        closing: of the terminal, last of all: where files are and what to do next, by a word for each.
    """

    title: str
    caveat: str = ""
    verdict: Sequence[str] = ()
    sections: Sequence[Section] = ()
    legend: Sequence[str] = ()
    notes: Sequence[str] = ()
    closing: Mapping[str, str] = field(default_factory=dict)

    def shown(self) -> list[Section]:
        """The sections that are not empty, the notes among them."""
        return [one for one in (*self.sections, Section("Notes", [Lines(self.notes, whole=True)])) if one.shown()]

    def images(self) -> Iterator[Figure | Picture]:
        """All figures and pictures, the empty ones too."""
        for section in self.sections:
            yield from (part for part in section.parts if isinstance(part, Figure | Picture))


def titled(title: str, caveat: str) -> str:
    """The title of a figure, which says what the caveat says: that its numbers are synthetic."""
    return f"{title} (synthetic)" if caveat.lower().startswith("synthetic") else title


def _is_empty(part: Part) -> bool:
    if isinstance(part, Figure):
        return not part.filled()
    return not (part.content if isinstance(part, Picture) else part.rows if isinstance(part, Table) else part.texts)
