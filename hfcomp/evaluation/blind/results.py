"""The numbers of blind rules, and their section: scores, items that each decides, models on those left."""

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
"""The subset of the items that are left."""


@dataclass(frozen=True)
class BlindResults:
    """What blind rules made of the items that models were scored on.

    Attributes:
        outcomes: one row per rule, item and metric; `arm` is the rule, or the prior of a model.
        skipped: rule to why it did not run, or title of a benchmark to why none did.
        captions: what the bigram model was counted on, by title and name of the benchmark.
        not_applicable: titles of benchmarks without a choice among texts.
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
        """The rules that ran, the priors of models last."""
        return list(dict.fromkeys(self.outcomes.table["arm"]))

    def of_models(self, models: Sequence[str], every: Sequence[str]) -> BlindResults:
        """The same with the priors of some of the models alone."""
        left = {prior_of(name) for name in every if name not in models}
        table = self.outcomes.table
        return replace(self, outcomes=Outcomes(table[~table["arm"].isin(left)]))

    def on_items_of(self, outcomes: Outcomes) -> BlindResults:
        kept = self.outcomes.table.merge(outcomes.table[ITEM].drop_duplicates(), on=ITEM, how="inner")
        return replace(self, outcomes=Outcomes(kept))

    def with_priors(self, tables: Sequence[pd.DataFrame]) -> BlindResults:
        return replace(self, outcomes=blind_outcomes([self.outcomes.table, blind_outcomes(tables).table]))

    @cached_property
    def counts(self) -> dict[tuple[str, ...], dict[str, int]]:
        """`right`, `wrong` and `undecided` items by benchmark, subset, metric and rule; an undecided one is a tie."""
        table = self.outcomes.table
        right = table["value"] == 1
        kinds = table.assign(right=right, undecided=~right & table["tie"], wrong=~right & ~table["tie"])
        return kinds.groupby([*LINE, "arm"], sort=False)[[*DECIDED]].sum().to_dict("index")

    def lines(self, averages: Averages) -> list[dict[str, Any]]:
        """A line per benchmark, subset or average, and metric: the `value` of each rule and what it decides."""
        found = []
        # Means over several benchmarks are left out, because no rule of texts applies to some of them.
        own_averages = {key: [one for one in value if not one.spans_benchmarks] for key, value in averages.items()}
        for line in summarize(self.outcomes, averages=own_averages, intervals=False):
            own = {key: line[key] for key in (*LINE, "average", "chance", "items", "images")}
            rules = {
                rule: {"value": one["value"], **self._decided(line, rule)} for rule, one in line["models"].items()
            }
            found.append({**own, "rules": rules})
        return found

    def _decided(self, line: Line, rule: str) -> dict[str, int]:
        subsets = [part for group in line["groups"] for part in group] if line["average"] else [line["subset"]]
        found = [self.counts[line["benchmark"], subset, line["metric"], rule] for subset in dict.fromkeys(subsets)]
        return {key: sum(one[key] for one in found) for key in DECIDED}

    @cached_property
    def solved(self) -> pd.Series:
        """By item, whether any rule of texts alone solves it; the priors of models are not counted."""
        table = self.outcomes.table
        # A prior is the model's own: an item that it solves is no fault of the benchmark's texts.
        texts = table[~table["arm"].str.startswith(f"{PRIOR} of ")]
        return (texts["value"] == 1).groupby([texts[key] for key in ITEM], sort=False).any()

    def unsolved(self, outcomes: Outcomes, models: Sequence[str]) -> list[dict[str, Any]]:
        """A line per benchmark and metric: each model on the items that no blind rule solves, over all subsets.

        Returns:
            Lines as of `summarize`, with `of`, the number of items before; where none is left, `items` is 0 and
            `models` is empty.
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
        found = []
        # Taken from all items, so lines without any item left are shown too.
        whole = self.solved.groupby(["benchmark", "metric"], sort=False).size()
        for (benchmark, metric), of in whole.items():
            empty = {"benchmark": benchmark, "subset": UNSOLVED, "metric": metric, "items": 0, "models": {}}
            line = known.get((benchmark, metric), empty)
            found.append({key: line[key] for key in line if key != "differences"} | {"of": int(of)})
        return found

    def to_json(
        self, averages: Averages, outcomes: Outcomes, models: Sequence[str], stored: Outcomes | None = None
    ) -> dict[str, Any]:
        """The entry `blind` of `results.json`; `stored` are the rows in `blind.parquet`, by default these."""
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
    there = [table for table in tables if len(table)]
    return Outcomes(pd.concat(there, ignore_index=True) if there else pd.DataFrame(columns=list(COLUMNS)))


def prior_of(model: str) -> str:
    return f"{PRIOR} of {model}"


def blind_section(blind: Mapping[str, Any], models: Sequence[str], *, brief: bool) -> Section:
    """Scores of the rules, models on the items that no rule solves, and in full what each rule decides."""
    shown = [
        line for part in group_lines(blind["lines"], "benchmark", "metric") for line in (part[:1] if brief else part)
    ]
    parts: list[Part] = [_scores(shown, list(blind["rules"])), _unsolved(blind["unsolved"], models)]
    if not brief:
        whole = [part[0] for part in group_lines(blind["lines"], "benchmark", "metric")]
        parts += [_decided(whole), Lines(_about(blind["rules"]), "the rules")]
    parts += [
        Lines(_skipped(blind["skipped"]), "blind rules that did not run"),
        Lines(_caption_lines(blind["captions"]), "" if brief else "captions of the bigram model"),
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
    of_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        of_reason.setdefault(reason, []).append(name)
    return [f"{', '.join(names)}: {reason}" for reason, names in of_reason.items()]


def _caption_lines(captions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = []
    for title, parts in captions.items():
        for name, one in parts.items():
            which = title if len(parts) == 1 else f"{title}, {name}"
            found.append(
                f"{which}: {one['captions']:,} captions of {one['place']}, without {one['of_its_images']:,} of its "
                f"images and {one['equal_texts']:,} equal to its texts"
            )
    return found
