"""The cards of `model_cards/`: what they are rendered from, kept small, in `examples/` beside this file.

`HFCOMP_WRITE_CARDS=1 make test ARGS=tests/reporting/cards` renders them anew; with a folder in place of 1, of the runs
in it, whose names are those of the recipes: `hfcomp train slipform --output_dir runs/slipform`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hfcomp.data.publishing import without_local_paths
from hfcomp.reporting.cards.card import render_card
from hfcomp.reporting.cards.runs import run_card
from hfcomp.reporting.lines import ASPECTS, select_aspect, standing
from hfcomp.reporting.run_record import RunRecord

FACTS = Path(__file__).with_name("examples")
CARDS = Path(__file__).resolve().parents[3] / "model_cards"
LEFT_OUT = ("checksum", "schema_version")
LINE = ("benchmark", "subset", "metric", "aspect", "average", "primary", "chance", "items", "images", "lines")
VALUE = ("value", "low", "high", "lowest", "highest", "seeds", "ties", "tie_rate")
CHANGE = ("value", "low", "high", "p", "q", "p_holm", "smallest")
DIGITS = 4


def render_example(name: str) -> str:
    """The card of an example."""
    return render_card(run_card(RunRecord.of(json.loads((FACTS / f"{name}.json").read_text(encoding="utf-8")))))


def write(name: str, run: Path | None) -> None:
    """Writes an example anew, of the folder of a run where there is one."""
    if run is not None:
        results = json.loads((run / "results.json").read_text(encoding="utf-8"))
        text = json.dumps(pin_facts(results), ensure_ascii=False, separators=(",", ":"))
        (FACTS / f"{name}.json").write_text(text.replace('{"benchmark"', '\n{"benchmark"') + "\n", encoding="utf-8")
    (CARDS / f"{name}.md").write_text(render_example(name), encoding="utf-8")


def pin_facts(results: dict[str, Any]) -> dict[str, Any]:
    """The facts of a card, in a few more digits than it shows, without the machine's name and paths."""
    kept = {key: value for key, value in results.items() if key not in LEFT_OUT}
    kept["versions"] = results["versions"] | {"platform": results["versions"]["platform"].partition("-")[0]}
    method = list(results["results"][0]["models"])[-1]
    compared = [line for aspect in ASPECTS for line in standing(select_aspect(results["results"], aspect))]
    kept["results"] = [_line(line, method, line in compared) for line in results["results"]]
    kept["general_average"] = results["general_average"] and _line(results["general_average"], method, True)
    return without_local_paths(_round(kept))


def _line(line: dict[str, Any], method: str, compared: bool) -> dict[str, Any]:
    """Of the differences those of the method and those to the base, on lines that have them in the card."""
    differences = {
        name: {other: _part(change, CHANGE) for other, change in changes.items() if method == name or other == "base"}
        for name, changes in line["differences"].items()
        if compared
    }
    models = {name: _part(value, VALUE) for name, value in line["models"].items()}
    return {**_part(line, LINE), "models": models, "differences": differences}


def _part(values: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _round(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _round(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_round(part) for part in value]
    # a p is shown from 0.001 on, a share as percent with a digit behind the point
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) and abs(value) < 1 else value
