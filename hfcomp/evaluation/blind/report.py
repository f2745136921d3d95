"""The section of blind rules in a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hfcomp.evaluation.blind.rules import RULES
from hfcomp.reporting.format import decimal, with_interval
from hfcomp.reporting.lines import grouped, name_of
from hfcomp.reporting.report import Lines, Part, Section, Table

TITLE = "Blind baselines"
NONE_LEFT = "none left"


def blind_section(blind: Mapping[str, Any], models: Sequence[str], *, brief: bool) -> Section:
    """Scores of the rules, models on the items that no rule solves, and in full what each rule decides.

    Args:
        blind: the entry `blind` of `results.json`.
        models: in the order of columns.
        brief: for the terminal: only the first line of each benchmark's metric.
    """
    shown = [line for part in grouped(blind["lines"], "benchmark", "metric") for line in (part[:1] if brief else part)]
    parts: list[Part] = [_scores(shown, list(blind["rules"])), _unsolved(blind["unsolved"], models)]
    if not brief:
        whole = [part[0] for part in grouped(blind["lines"], "benchmark", "metric")]
        parts += [_decided(whole), Lines(_about(blind["rules"]), "the rules")]
    parts += [
        Lines(_skipped(blind["skipped"]), "blind rules that did not run"),
        Lines(_captions(blind["captions"]), "" if brief else "captions of the bigram model"),
    ]
    if blind["not_applicable"] and not brief:
        parts.append(Lines([", ".join(blind["not_applicable"])], "not applicable: no choice among texts of an item"))
    return Section(TITLE, parts)


def _scores(lines: Sequence[Mapping[str, Any]], rules: Sequence[str]) -> Table:
    rows = [
        [
            name_of(line),
            decimal(line["chance"]),
            *(decimal(line["rules"].get(rule, {}).get("value")) for rule in rules),
        ]
        for line in lines
    ]
    return Table("choosing without the image, percent", ["", "chance", *rules], rows, models=len(rules))


def _unsolved(lines: Sequence[Mapping[str, Any]], models: Sequence[str]) -> Table:
    rows = []
    for line in lines:
        cells = [with_interval(line["models"].get(name)) if line["items"] else NONE_LEFT for name in models]
        rows.append([f"{line['benchmark']} {line['metric']}", f"{line['items']:,} of {line['of']:,}", *cells])
    title = "models on the items that no rule of texts solves, percent of these items"
    return Table(title, ["", "items", *models], rows, models=len(models))


def _decided(lines: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [name_of(line), rule, *(f"{one[key]:,}" for key in ("right", "wrong", "undecided"))]
        for line in lines
        for rule, one in line["rules"].items()
    ]
    return Table("items that each rule decides", ["", "rule", "right", "wrong", "undecided"], rows, labels=2)


def _about(rules: Mapping[str, str]) -> list[str]:
    kinds = dict.fromkeys(rule if rule in RULES else words for rule, words in rules.items())
    of = {words: rule for rule, words in RULES.items()}
    names = [one if one in RULES else of[one] for one in kinds]
    return [f"{name}: {RULES[name]}" for name in names]


def _skipped(reasons: Mapping[str, str]) -> list[str]:
    """A line for each reason, with all that it is the reason of."""
    of_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        of_reason.setdefault(reason, []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in of_reason.items()]


def _captions(captions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = []
    for title, parts in captions.items():
        for name, one in parts.items():
            which = title if len(parts) == 1 else f"{title}, {name}"
            found.append(
                f"{which}: {one['captions']:,} captions of {one['place']}, without {one['of_its_images']:,} of its "
                f"images and {one['equal_texts']:,} equal to its texts"
            )
    return found
