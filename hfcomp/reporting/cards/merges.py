"""The card of a model between a base and a tuned one, from its record and the results of its sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hfcomp.data.publishing import is_on_hub, without_local_paths
from hfcomp.reporting import tables
from hfcomp.reporting.cards.card import FORGETTING, PLACE, TERMS, Card, Interpolation, evaluate_command
from hfcomp.reporting.cards.metadata import card_metadata, eval_files, eval_results
from hfcomp.reporting.cards.runs import result_sections
from hfcomp.reporting.lines import as_last
from hfcomp.reporting.report import Table
from hfcomp.statistics.results import versions
from hfcomp.statistics.summary import BASE

FIGURE_TEXT = "composition against general abilities on the way from the base to the tuned model"
TUNED_CARD = "How it was trained, and on what, is in the card of the tuned model."


def merge_card(
    record: Mapping[str, Any], results: Mapping[str, Any] | None = None, *, model: str = "", figure: str = ""
) -> Card:
    """The card of a point between two models.

    Args:
        record: the content of its `merge.json`.
        results: of its sweep, as `results.json` has them; `None` for a point that was given.
        model: its name in the results.
        figure: the name of the picture of the points beside the card.
    """
    base, tuned = record["base"]["path"], record["tuned"]["path"]
    base_id = base if is_on_hub(base) else None
    scored = without_local_paths(dict(results or {}))
    lines = as_last(scored.get("results", []), model)
    benchmarks = scored.get("benchmarks", {})
    title = f"Between {base} and {tuned}, alpha {record['alpha']:g}"
    found = eval_results(lines, own=None, benchmarks=benchmarks)
    return Card(
        metadata=card_metadata("WiSE-FT", base=base, results=found),
        title=title,
        summary=f"A dual encoder of images and texts: a point between {base} and {tuned}, which was tuned from it.",
        objective="",
        interpolation=Interpolation.of(record["alpha"], record["chosen"]),
        figure=(figure, FIGURE_TEXT) if figure else None,
        caveat=scored.get("caveat", ""),
        results=result_sections(lines, None),
        legend=tables.legend(lines) if lines else "",
        evaluate=evaluate_command("merged", PLACE, base_id),
        provenance={
            name: f"{one['path']} ({one['weights']})"
            for name, one in ((BASE, record["base"]), ("tuned", record["tuned"]))
        },
        command=(scored["config"]["command"], "bash") if scored.get("config", {}).get("command") else None,
        values=Table("", [], []),
        environment=versions(),
        limits=[FORGETTING, TERMS],
        notes=[TUNED_CARD, *scored.get("notes", ())],
        eval_files=eval_files(lines, benchmarks=benchmarks, version=record["hfcomp_version"]),
    )
