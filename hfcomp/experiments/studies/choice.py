"""The choice of a setting on a control alone: the highest primary endpoint of those that keep general abilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hfcomp.experiments.studies.plans import ChoicePlan
from hfcomp.reading import nearest
from hfcomp.reporting.format import decimal, number
from hfcomp.reporting.lines import Line, of_aspect, subsets_of
from hfcomp.reporting.report import Lines, Section, Table
from hfcomp.statistics.measures import Measure
from hfcomp.statistics.summary import BASE


@dataclass(frozen=True)
class Candidate:
    """A setting that may be chosen.

    Attributes:
        setting: Its name.
        primary: The control's primary endpoint, a fraction.
        general: Mean of the lines that the plan names.
        loss: The base's mean of these lines less this one.
    """

    setting: str
    primary: float
    general: float
    loss: float


@dataclass(frozen=True)
class Choice:
    """The setting that a plan's rule chooses.

    Attributes:
        control: Variant that was judged.
        endpoint: Name of the primary endpoint.
        base: The base's mean of the general lines, 0 to 1.
        candidates: All settings, in the plan's order.
        chosen: The chosen one.
        is_kept: Whether it loses at most the tolerance; if not, none does.
        lines: Number of general lines.
    """

    control: str
    endpoint: str
    base: float
    candidates: list[Candidate]
    chosen: Candidate
    is_kept: bool
    lines: int

    def facts(self) -> dict[str, Any]:
        """What `sweep.json` says of it."""
        return asdict(self)


def check_choice(plan: ChoicePlan, scored: Sequence[str], primary: Measure | None) -> None:
    """Checks that what a choice needs is scored.

    Args:
        plan: The rule.
        scored: Names of the measures.
        primary: The primary endpoint.

    Raises:
        ValueError: A line of the plan is not scored, or there is no primary endpoint.
    """
    if primary is None:
        raise ValueError("choose: compares primary endpoints of composition, and none is scored.")
    for name in plan.keep or ():
        if name not in scored:
            raise ValueError(
                f"choose: keep: {name!r} is not scored by this evaluation.{nearest(name, scored)} "
                f"Known: {'; '.join(scored)}."
            )


def choose_setting(lines: Mapping[str, Sequence[Line]], control: str, plan: ChoicePlan) -> Choice:
    """Applies the rule of `ChoicePlan`.

    Args:
        lines: Lines of each setting, one of them primary.
        control: Variant by which settings are judged.
        plan: The general lines and the tolerance.
    """
    first = next(iter(lines.values()))
    kept_lines = plan.keep or [line["name"] for line in subsets_of(of_aspect(first, "general"))]
    base, endpoint = _general(first, BASE, kept_lines), str(_primary(first)["primary"])
    candidates = []
    for setting, own in lines.items():
        general = _general(own, control, kept_lines)
        primary = number(_primary(own)["models"][control]["value"])
        candidates.append(Candidate(setting, primary, general, round(base - general, 12)))  # sums of floats
    kept = [one for one in candidates if one.loss <= plan.tolerance]
    chosen = max(kept, key=lambda one: one.primary) if kept else min(candidates, key=lambda one: one.loss)
    return Choice(control, endpoint, base, candidates, chosen, bool(kept), len(kept_lines))


def choice_section(choice: Choice, plan: ChoicePlan) -> Section:
    """The candidates as a table, and the rule in words."""
    header = ["setting", choice.endpoint, "general", "loss against base", "within tolerance"]
    rows = [
        [
            one.setting,
            decimal(one.primary),
            decimal(one.general),
            decimal(one.loss, sign="+"),
            "yes" if one.loss <= plan.tolerance else "no",
        ]
        for one in choice.candidates
    ]
    rule = (
        f"Rule: of the settings in which {choice.control} loses at most {decimal(plan.tolerance)} points of general "
        f"abilities (the mean of {choice.lines} lines, {decimal(choice.base)} for {BASE}), the one with its highest "
        f"{choice.endpoint}; if there is none, the one that loses least."
    )
    return Section("Choice of a setting", [Table("", header, rows), Lines([rule])])


def choice_verdict(choice: Choice, plan: ChoicePlan) -> str:
    """The chosen setting in a sentence."""
    one = choice.chosen
    numbers = (
        f"{choice.endpoint} {decimal(one.primary)}, loss of general abilities {decimal(one.loss, sign='+')} points"
    )
    if choice.is_kept:
        return f"Chosen on {choice.control} alone: {one.setting} ({numbers})."
    return (
        f"No setting keeps the loss of general abilities within {decimal(plan.tolerance)} points. Chosen on "
        f"{choice.control} alone is the one that loses least: {one.setting} ({numbers})."
    )


def _primary(lines: Sequence[Line]) -> Line:
    return next(line for line in lines if line.get("primary"))


def _general(lines: Sequence[Line], model: str, names: Sequence[str]) -> float:
    known = {line["name"]: line for line in lines}
    return sum(number(known[name]["models"][model]["value"]) for name in names) / len(names)
