"""The numbers of blind rules: their scores, the items that each decides, and models on the items that none solves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from hfcomp.evaluation.blind.rules import PRIOR, RULES, prior_of
from hfcomp.reporting.lines import Line
from hfcomp.statistics import Outcomes, summarize
from hfcomp.statistics.measures import Averages
from hfcomp.statistics.outcomes import COLUMNS, LINE, read_table

ITEM = [*LINE, "item"]
BLIND_FILE = "blind.parquet"
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
        """The same on the items alone that outcomes have."""
        kept = self.outcomes.table.merge(outcomes.table[ITEM].drop_duplicates(), on=ITEM, how="inner")
        return replace(self, outcomes=Outcomes(kept))

    def with_priors(self, tables: Sequence[pd.DataFrame]) -> BlindResults:
        """The same with outcomes of the priors of models, whose `arm` is `prior_of` them."""
        return replace(self, outcomes=blind_outcomes([self.outcomes.table, blind_outcomes(tables).table]))

    @cached_property
    def counts(self) -> dict[tuple[str, ...], dict[str, int]]:
        """`right`, `wrong` and `undecided`, items of each line and rule; an undecided one is a tie."""
        table = self.outcomes.table
        right = table["value"] == 1
        kinds = table.assign(right=right, undecided=~right & table["tie"], wrong=~right & ~table["tie"])
        counts = kinds.groupby([*LINE, "arm"], sort=False)[["right", "wrong", "undecided"]].sum()
        return counts.to_dict("index")

    def lines(self, averages: Averages) -> list[dict[str, Any]]:
        """A line per benchmark, subset or average, and metric: the `value` of each rule and what it decides."""
        found = []
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
        return {key: sum(int(one[key]) for one in found) for key in ("right", "wrong", "undecided")}

    @cached_property
    def solved(self) -> pd.Series:
        """By item, whether any rule of texts alone solves it; the priors of models are not counted."""
        table = self.outcomes.table
        texts = table[~table["arm"].str.startswith(f"{PRIOR} of ")]
        return (texts["value"] == 1).groupby([texts[key] for key in ITEM], sort=False).any()

    def unsolved(self, outcomes: Outcomes, models: Sequence[str]) -> list[dict[str, Any]]:
        """A line per benchmark and metric: each model on the items that no blind rule solves, over all subsets.

        Args:
            outcomes: of the models.
            models: in the order of columns.

        Returns:
            Lines as of `summarize`, with `of`, the number of items before; where none is left, `items` is 0 and
            `models` is empty.
        """
        table = outcomes.table[outcomes.table["arm"].isin(list(models))]
        kept = table.merge(self.solved.rename("solved").reset_index(), on=ITEM, how="inner")
        left = kept[~kept["solved"].astype(bool)].drop(columns="solved")
        left = left.assign(item=left["subset"] + "/" + left["item"], subset=UNSOLVED, stratum=None)
        known = {}
        if len(left):
            lines = summarize(Outcomes(left), models=list(models))
            known = {(line["benchmark"], line["metric"]): line for line in lines}
        found = []
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


def write_blind(folder: Path, blind: BlindResults | None) -> None:
    """Writes `blind.parquet`, one row per rule and item; without results the one of an earlier run is removed."""
    if blind is None or not len(blind.outcomes):
        (folder / BLIND_FILE).unlink(missing_ok=True)
    else:
        blind.outcomes.write(folder / BLIND_FILE)


def read_blind(folder: Path, results: Mapping[str, Any]) -> BlindResults | None:
    """What `write_blind` wrote; `None` where an earlier hfcomp, or a run without blind rules, wrote the results.

    Args:
        folder: of the results.
        results: what `results.json` holds.

    Raises:
        ValueError: for a file that is missing, damaged or of other results.
    """
    facts = results.get("blind")
    if not facts:
        return None
    about = {key: facts[key] for key in ("skipped", "captions", "not_applicable")}
    if facts["items"] is None:
        return BlindResults(blind_outcomes([]), **about)
    if not (folder / BLIND_FILE).is_file():
        raise ValueError(f"{folder}: found no {BLIND_FILE}, which results.json names. Restore it, or evaluate again.")
    table, _ = read_table(folder / BLIND_FILE, facts["items"])
    return BlindResults(Outcomes(table), **about)


def blind_outcomes(tables: Sequence[pd.DataFrame]) -> Outcomes:
    """The rows of all tables; none for a run without a choice among texts."""
    there = [table for table in tables if len(table)]
    return Outcomes(pd.concat(there, ignore_index=True) if there else pd.DataFrame(columns=list(COLUMNS)))
