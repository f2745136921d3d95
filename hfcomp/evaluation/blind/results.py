"""Results of blind rules and their report section: scores, decided items, and models on the remaining items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd

from hfcomp.evaluation.blind.rules import PRIOR, RULES
from hfcomp.reporting.format import decimal, with_interval
from hfcomp.reporting.lines import Line, group_lines, name_of
from hfcomp.reporting.report import Lines, Part, Section, Table
from hfcomp.statistics import Outcomes, summarize
from hfcomp.statistics.measures import Averages
from hfcomp.statistics.outcomes import COLUMNS, LINE

ITEM = [*LINE, "item"]
DECIDED = ("right", "wrong", "undecided")
TITLE = "Blind baselines"
NONE_LEFT = "none left"
UNSOLVED = "solved by no blind rule"
"""Name of the subset of the remaining items."""


@dataclass(frozen=True)
class BlindResults:
    """Results of blind rules on the items that models were scored on.

    Attributes:
        outcomes: One row per rule, item and metric; `arm` is the rule, or the prior of a model.
        skipped: Reason by rule if it did not run, or by title of a benchmark if no rule did.
        captions: Counts of the bigram model's captions, by title and name of the benchmark.
        not_applicable: Titles of benchmarks without a choice among texts.
    """

    outcomes: Outcomes
    skipped: Mapping[str, str] = field(default_factory=dict)
    captions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    not_applicable: Sequence[str] = ()

    @classmethod
    def join(cls, tables: Sequence[pd.DataFrame], **facts: Any) -> BlindResults:
        return cls(blind_outcomes(tables), **facts)

    @property
    def rules(self) -> list[str]:
        """The rules that ran, with the priors of models last."""
        return list(dict.fromkeys(self.outcomes.table["arm"]))

    def select_models(self, models: Sequence[str], every: Sequence[str]) -> BlindResults:
        """Returns a copy with the priors of only some models."""
        left = {prior_of(name) for name in every if name not in models}
        table = self.outcomes.table
        return replace(self, outcomes=Outcomes(table[~table["arm"].isin(left)]))

    def restrict_to(self, outcomes: Outcomes) -> BlindResults:
        kept = self.outcomes.table.merge(outcomes.table[ITEM].drop_duplicates(), on=ITEM, how="inner")
        return replace(self, outcomes=Outcomes(kept))

    def with_priors(self, tables: Sequence[pd.DataFrame]) -> BlindResults:
        return replace(self, outcomes=blind_outcomes([self.outcomes.table, blind_outcomes(tables).table]))

    @cached_property
    def counts(self) -> dict[tuple[str, ...], dict[str, int]]:
        """Numbers of `right`, `wrong` and `undecided` (tied) items by benchmark, subset, metric and rule."""
        table = self.outcomes.table
        right = table["value"] == 1
        kinds = table.assign(right=right, undecided=~right & table["tie"], wrong=~right & ~table["tie"])
        return kinds.groupby([*LINE, "arm"], sort=False)[[*DECIDED]].sum().to_dict("index")

    def lines(self, averages: Averages) -> list[dict[str, Any]]:
        """Returns a line per benchmark, subset or average, and metric: each rule's `value` and decided items."""
        lines = []
        # Means over several benchmarks are left out, because text rules do not apply to some of them.
        own_averages = {
            key: [average for average in value if not average.spans_benchmarks] for key, value in averages.items()
        }
        for line in summarize(self.outcomes, averages=own_averages, intervals=False):
            own = {key: line[key] for key in (*LINE, "average", "chance", "items", "images")}
            rules = {
                rule: {"value": estimate["value"], **self._count_decided(line, rule)}
                for rule, estimate in line["models"].items()
            }
            lines.append({**own, "rules": rules})
        return lines

    def _count_decided(self, line: Line, rule: str) -> dict[str, int]:
        subsets = [part for group in line["groups"] for part in group] if line["average"] else [line["subset"]]
        counts = [self.counts[line["benchmark"], subset, line["metric"], rule] for subset in dict.fromkeys(subsets)]
        return {key: sum(count[key] for count in counts) for key in DECIDED}

    @cached_property
    def solved(self) -> pd.Series:
        """Whether any text rule solves an item, by item. The priors of models do not count."""
        table = self.outcomes.table
        # A prior belongs to the model, so an item that it solves is not a fault of the benchmark's texts.
        texts = table[~table["arm"].str.startswith(f"{PRIOR} of ")]
        return (texts["value"] == 1).groupby([texts[key] for key in ITEM], sort=False).any()

    def unsolved(self, outcomes: Outcomes, models: Sequence[str]) -> list[dict[str, Any]]:
        """Scores each model on the items that no blind rule solves, over all subsets.

        Returns:
            A line per benchmark and metric, as from `summarize`, with `of`, the number of all items. If no item is
            left, `items` is 0 and `models` is empty.
        """
        table = outcomes.table[outcomes.table["arm"].isin(list(models))]
        kept = table.merge(self.solved.rename("solved").reset_index(), on=ITEM, how="inner")
        left = kept[~kept["solved"].astype(bool)].drop(columns="solved")
        # The table has one line over all subsets, and names of items are unique only within a subset.
        left = left.assign(item=left["subset"] + "/" + left["item"], subset=UNSOLVED, stratum=None)
        known = {}
        if len(left):
            lines = summarize(Outcomes(left), models=list(models))
            known = {(line["benchmark"], line["metric"]): line for line in lines}
        unsolved = []
        # From all items, so lines without a remaining item are shown too.
        whole = self.solved.groupby(["benchmark", "metric"], sort=False).size()
        for (benchmark, metric), of in whole.items():
            empty = {"benchmark": benchmark, "subset": UNSOLVED, "metric": metric, "items": 0, "models": {}}
            line = known.get((benchmark, metric), empty)
            unsolved.append({key: line[key] for key in line if key != "differences"} | {"of": int(of)})
        return unsolved

    def to_json(
        self, averages: Averages, outcomes: Outcomes, models: Sequence[str], stored: Outcomes | None = None
    ) -> dict[str, Any]:
        """Returns the entry `blind` of `results.json`; `stored` are the rows in `blind.parquet`, by default these."""
        stored = self.outcomes if stored is None else stored
        return {
            "rules": {rule: RULES[PRIOR if rule not in RULES else rule] for rule in self.rules},
            "skipped": dict(self.skipped),
            "captions": self.captions,
            "not_applicable": list(self.not_applicable),
            "items": stored.digest if len(stored) else None,
            "lines": self.lines(averages) if len(self.outcomes) else [],
            "unsolved": self.unsolved(outcomes, models) if len(self.outcomes) else [],
        }


def blind_outcomes(tables: Sequence[pd.DataFrame]) -> Outcomes:
    filled = [table for table in tables if len(table)]
    return Outcomes(pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=list(COLUMNS)))


def prior_of(model: str) -> str:
    return f"{PRIOR} of {model}"


def blind_section(blind: Mapping[str, Any], models: Sequence[str], *, brief: bool) -> Section:
    """Builds the section: scores of the rules, models on items that no rule solves, and in full the decided items."""
    shown = [
        line for part in group_lines(blind["lines"], "benchmark", "metric") for line in (part[:1] if brief else part)
    ]
    parts: list[Part] = [_scores_table(shown, list(blind["rules"])), _unsolved_table(blind["unsolved"], models)]
    if not brief:
        whole = [part[0] for part in group_lines(blind["lines"], "benchmark", "metric")]
        parts += [_decided_table(whole), Lines(_explain_rules(blind["rules"]), "the rules")]
    parts += [
        Lines(_group_by_reason(blind["skipped"]), "blind rules that did not run"),
        Lines(_caption_lines(blind["captions"]), "" if brief else "captions of the bigram model"),
    ]
    if blind["not_applicable"] and not brief:
        parts.append(Lines([", ".join(blind["not_applicable"])], "not applicable: no choice among an item's texts"))
    return Section(TITLE, parts)


def _scores_table(lines: Sequence[Mapping[str, Any]], rules: Sequence[str]) -> Table:
    rows = [
        [
            name_of(line),
            decimal(line["chance"]),
            *(decimal(line["rules"].get(rule, {}).get("value")) for rule in rules),
        ]
        for line in lines
    ]
    return Table("choice without the image, percent", ["", "chance", *rules], rows, models=len(rules))


def _unsolved_table(lines: Sequence[Mapping[str, Any]], models: Sequence[str]) -> Table:
    rows = []
    for line in lines:
        cells = [with_interval(line["models"].get(name)) if line["items"] else NONE_LEFT for name in models]
        rows.append([f"{line['benchmark']} {line['metric']}", f"{line['items']:,} of {line['of']:,}", *cells])
    title = "models on the items that no text rule solves, percent of these items"
    return Table(title, ["", "items", *models], rows, models=len(models))


def _decided_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [name_of(line), rule, *(f"{counts[key]:,}" for key in ("right", "wrong", "undecided"))]
        for line in lines
        for rule, counts in line["rules"].items()
    ]
    return Table("items that each rule decides", ["", "rule", "right", "wrong", "undecided"], rows, labels=2)


def _explain_rules(rules: Mapping[str, str]) -> list[str]:
    kinds = dict.fromkeys(rule if rule in RULES else words for rule, words in rules.items())
    by_words = {words: rule for rule, words in RULES.items()}
    names = [kind if kind in RULES else by_words[kind] for kind in kinds]
    return [f"{name}: {RULES[name]}" for name in names]


def _group_by_reason(reasons: Mapping[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _caption_lines(captions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = []
    for title, parts in captions.items():
        for name, counts in parts.items():
            which = title if len(parts) == 1 else f"{title}, {name}"
            lines.append(
                f"{which}: {counts['captions']:,} captions from {counts['place']}, without "
                f"{counts['of_its_images']:,} of its images and {counts['equal_texts']:,} equal to its texts"
            )
    return lines
