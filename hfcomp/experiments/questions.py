"""The three questions that a run answers first: what the negatives gave, what the method added, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hfcomp.experiments.experiment_config import HUMAN, SAME_BATCH, STATIC_MARGIN
from hfcomp.reporting.figures import Points
from hfcomp.reporting.format import Estimate, counted, direction, has_interval, number, p_value, with_interval
from hfcomp.reporting.lines import (
    CEILING,
    FLOOR,
    Line,
    difference,
    edge_of,
    models_of,
    name_of,
    num_seeds,
    of_aspect,
    parts_of,
    points_of,
    primary_of,
    subsets_of,
    unit_of_line,
)
from hfcomp.statistics.summary import BASE

PLAIN = "plain"
NEGATIVES, ADDED, WITH_HUMAN, COST = "negatives", "method", "human", "cost"
WORDS = {1: "a gain", 0: "no difference shown", -1: "a loss", None: "not known"}
AXIS = "points (left of 0: a loss), 95 % intervals"


@dataclass(frozen=True)
class Comparison:
    """A difference that answers one of the questions.

    Attributes:
        question: The kind of the question.
        model: The model that is judged.
        reference: The model that it is compared to.
        line: The primary endpoint, or general abilities.
    """

    question: str
    model: str
    reference: str
    line: Line

    @property
    def change(self) -> Estimate | None:
        """The model minus the reference."""
        return difference(self.line, self.model, self.reference)

    @property
    def word(self) -> str:
        """The difference in words; a gain below chance is named as such."""
        sign, chance = direction(self.change), number(self.line.get("chance"))
        below = sign == 1 and self.question != COST and number(self.line["models"][self.model]["value"]) < chance
        return WORDS[sign] + (", but both are below chance," if below else "")


def comparisons(lines: Sequence[Line], general: Line | None) -> list[Comparison]:
    """The differences that answer the questions, as far as a run has the models for them.

    Args:
        lines: The lines of the results, the base first and the method last.
        general: The mean of general abilities, if known.
    """
    models, primary = models_of(lines), primary_of(lines)
    if len(models) < 2 or models[0] != BASE:
        return []
    method, wanted = models[-1], []
    if primary is not None:
        wanted.append((NEGATIVES, SAME_BATCH, PLAIN, primary))
        for question, suffix in ((ADDED, ""), (WITH_HUMAN, f"-{HUMAN}")):
            controls = [f"{STATIC_MARGIN}{suffix}", SAME_BATCH if SAME_BATCH in models else PLAIN]
            wanted += [(question, f"{method}{suffix}", other, primary) for other in controls]
    if general is not None:
        wanted += [(COST, method, other, general) for other in (SAME_BATCH, BASE)]
    return [Comparison(*one) for one in wanted if {one[1], one[2]} <= {*models} and one[1] != one[2]]


def answer(
    lines: Sequence[Line], general: Line | None = None, published: Sequence[Mapping[str, Any]] = ()
) -> list[str]:
    """The primary endpoint and the answers to the questions, a line or a few in a terminal.

    Args:
        lines: The lines of the results, the base first and the method last.
        general: The mean of general abilities, if known.
        published: Published differences between models, each with `model`, `reference`, `value` and `place`.
    """
    models = models_of(lines)
    if len(models) < 2 or models[0] != BASE:
        return []
    given = comparisons(lines, general)
    of = {kind: [one for one in given if one.question == kind] for kind in (NEGATIVES, ADDED, WITH_HUMAN, COST)}
    found = [_heading(lines)]
    if of[NEGATIVES]:
        found.append(f"What did the negatives give? {_clauses(of[NEGATIVES])}.")
    if primary_of(lines) is not None:
        found.append(_added(of[ADDED], models) + _published(of[ADDED], published))
    if of[WITH_HUMAN]:
        found.append(f"And with human ratings? {_clauses(of[WITH_HUMAN])}.")
    return [*found, _cost(lines, of[COST], models)]


def _heading(lines: Sequence[Line]) -> str:
    """The number of seeds, the primary endpoint, and how many of its parts cannot show a difference."""
    seeds, primary = num_seeds(lines), primary_of(lines)
    where = "On this seed" if seeds == 1 else f"Over {seeds} seeds"
    if primary is None:
        return f"{where}. No primary endpoint."
    parts = parts_of(primary, lines)
    edges = [{edge_of(line) for line in part} for part in parts]
    at = {name: sum(edge == {name} for edge in edges) for name in (FLOOR, CEILING)}
    stuck = ", ".join(f"{count} at the {name}" for name, count in at.items() if count)
    of = f"of {len(parts)} parts " if len(parts) > 1 else ""
    return f"{where}. Endpoint: {primary['primary']} ({of}{stuck or 'none at floor or ceiling'})."


def _added(given: Sequence[Comparison], models: Sequence[str]) -> str:
    method = models[-1]
    if SAME_BATCH not in models:
        lacking = f"There is no {SAME_BATCH} control here, so what {method} adds to its own batch is not shown."
        return f"What did {method} give? {_clauses(given)}. {lacking}" if given else lacking
    what = "the margin" if STATIC_MARGIN in models else method
    return f"What did {what} add? {_clauses(given)}."


def _clauses(given: Sequence[Comparison]) -> str:
    """The words and numbers of comparisons; the same word is not repeated."""
    parts, before = [], ""
    for one in given:
        word = "" if one.word == before else f"{one.word} "
        before = one.word
        parts.append(f"{word}against {one.reference}: {points_of(one.change, one.line)}{_test(one)}")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:]


def _test(one: Comparison) -> str:
    """The p of the comparison that a run is planned for, and whether there is no interval."""
    planned = one.question in (ADDED, WITH_HUMAN) and one.reference == SAME_BATCH
    known = [f"p {p_value((one.change or {}).get('p'))}"] if planned else []
    known += [] if has_interval(one.change) else ["no interval"]
    return f" ({', '.join(known)})" if known else ""


def _published(given: Sequence[Comparison], published: Sequence[Mapping[str, Any]]) -> str:
    """The published sizes of the same differences."""
    pairs = [(one.model, one.reference) for one in given]
    known = [one for one in published if (one["model"], one["reference"]) in pairs]
    if not known:
        return ""
    parts = [f"{100 * one['value']:+.2f} against {one['reference']}" for one in known]
    table = known[0]["place"].rpartition(", ")[2]
    return f" The paper's own: {', '.join(parts)} ({table})."


def _cost(lines: Sequence[Line], given: Sequence[Comparison], models: Sequence[str]) -> str:
    """The change of general abilities, and how many of their lines fall."""
    method, abilities = models[-1], subsets_of(of_aspect(lines, "general"))
    question = f"What did {method} cost in general abilities?"
    if not abilities:
        return f"{question} Not known, as none was scored."
    falls = []
    for other in (name for name in (SAME_BATCH, BASE) if name in models[:-1]):
        signs = [direction(difference(line, method, other)) for line in abilities]
        untested = signs.count(None)
        of = "" if falls else f" of {counted(len(abilities), 'line')} fall"
        falls.append(f"{signs.count(-1)}{of} against {other}" + (f" ({untested} have no test)" if untested else ""))
    fall = f"{', '.join(falls)}."
    return f"{question} {_clauses(given)}. {fall}" if given else f"{question} {fall}"


def questions_panel(lines: Sequence[Line], general: Line | None) -> Points:
    """The answers as a panel of a figure: a row for each difference, with its numbers and its word."""
    given = comparisons(lines, general)
    rows = [(f"{one.question}: {one.model} minus {one.reference}", {one.model: one.change}, None) for one in given]
    notes = [f"{with_interval(one.change, unit_of_line(one.line), '+')}, {one.word}" for one in given]
    names = list(dict.fromkeys(one.model for one in given))
    primary = [f"gain on {one.line['primary']}" for one in given if one.question != COST][:1]
    cost = [f"cost in general abilities ({name_of(one.line)})" for one in given if one.question == COST][:1]
    title = ", ".join([*primary, *cost])
    title = title[:1].upper() + title[1:]
    return Points(title, AXIS, rows, names, differences=True, notes=notes)


def lines_that_fall(lines: Sequence[Line]) -> list[str]:
    """Each line of general abilities that falls significantly, first those that fall against same-batch too."""
    models, abilities = models_of(lines), subsets_of(of_aspect(lines, "general"))
    if len(models) < 2 or models[0] != BASE:
        return []
    method, control = models[-1], SAME_BATCH if SAME_BATCH in models[:-1] else ""
    found: dict[str, list[str]] = {f"more than {control}": [], "against base alone": []}
    for line in abilities:
        beyond = control and direction(difference(line, method, control)) == -1
        if beyond or direction(difference(line, method, BASE)) == -1:
            others = [name for name in (control, BASE) if name]
            changes = ", ".join(
                f"{points_of(difference(line, method, other), line)} against {other}" for other in others
            )
            found[f"more than {control}" if beyond else "against base alone"].append(f"{name_of(line)} {changes}")
    return [f"{kind}: {text}" for kind, texts in found.items() for text in texts]
