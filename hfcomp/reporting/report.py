"""A report as plain data: sections with texts, tables and figures, independent of what was run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hfcomp.reporting.figures import Figure


@dataclass(frozen=True)
class Table:
    """A table of texts.

    The first `labels` columns contain names; the others contain numbers, which are never broken. Each of the last
    `models` columns belongs to one model; if the model names do not fit, models become rows.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1
    models: int = 0


@dataclass(frozen=True)
class Picture:
    """An image that is not drawn from data: file name, title, and PNG content."""

    name: str
    title: str
    content: bytes


@dataclass(frozen=True)
class Lines:
    """Texts that each start on a new line. If `whole`, the terminal does not break them, so they can be copied."""

    texts: Sequence[str]
    title: str = ""
    whole: bool = False


Part = Table | Figure | Picture | Lines


@dataclass(frozen=True)
class Section:
    """A part of a report; a figure at the top has no title."""

    title: str
    parts: Sequence[Part]

    def nonempty_parts(self) -> list[Part]:
        # Reports are built from whatever was evaluated. Missing parts are empty; they are dropped here, not in each
        # renderer.
        return [part for part in self.parts if not _is_empty(part)]


@dataclass(frozen=True)
class Report:
    """A report: title, verdict, sections, notes.

    Attributes:
        caveat: Limits of everything that the report says.
        verdict: Sentences that a reader must not miss.
        sections: Sections in this order, if they exist: gain vs. forgetting, composition, general abilities,
            differences, ties, cost, data, models, how it was made.
        legend: Paragraphs on how to read the numbers.
        notes: Additional remarks on the numbers.
        closing: Last lines in the terminal, each with a keyword: paths of the files and the next step.
    """

    title: str
    caveat: str = ""
    verdict: Sequence[str] = ()
    sections: Sequence[Section] = ()
    legend: Sequence[str] = ()
    notes: Sequence[str] = ()
    closing: Mapping[str, str] = field(default_factory=dict)

    def nonempty_sections(self) -> list[Section]:
        """Returns the sections that are not empty, including the notes."""
        sections = (*self.sections, Section("Notes", [Lines(self.notes, whole=True)]))
        return [section for section in sections if section.nonempty_parts()]

    def images(self) -> Iterator[Figure | Picture]:
        """Yields all figures and pictures, including empty ones."""
        for section in self.sections:
            yield from (part for part in section.parts if isinstance(part, Figure | Picture))


def figure_title(title: str, caveat: str) -> str:
    """Returns the title of a figure, marked as synthetic if the caveat says so."""
    return f"{title} (synthetic)" if caveat.lower().startswith("synthetic") else title


def _is_empty(part: Part) -> bool:
    if isinstance(part, Figure):
        return not part.nonempty_panels()
    return not (part.content if isinstance(part, Picture) else part.rows if isinstance(part, Table) else part.texts)
