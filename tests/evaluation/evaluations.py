"""Outcomes of made-up models, as an engine hands them over, and folders of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hfcomp.evaluation.evaluation_results import EvaluationResults, evaluation_to_json
from hfcomp.statistics import Outcomes
from hfcomp.statistics.average import Average
from hfcomp.statistics.results import write_results

SUBSETS = ("add", "swap")
MACRO = Average("macro of 2", (("add",), ("swap",)))
AVERAGES = {"SugarCrepe": [MACRO, Average("micro", pooled=True)]}
VERSIONS = {"hfcomp": "0.0"}


def outcomes(
    model: str,
    values: Any,
    *,
    benchmark: str = "SugarCrepe",
    subset: str = "all",
    metric: str = "caption choice",
    aspect: str = "composition",
    chance: float = 0.5,
) -> pd.DataFrame:
    """One item an image."""
    count = len(values)
    columns = {
        "item": [f"{subset}/{index}" for index in range(count)],
        "image_id": [f"{index}.jpg" for index in range(count)],
        "value": np.asarray(values, float),
        "tie": np.zeros(count, bool),
    }
    facts = {"benchmark": benchmark, "subset": subset, "metric": metric, "aspect": aspect, "chance": chance}
    return pd.DataFrame(columns).assign(**facts, arm=model)


def crepe(model: str, share: float, *, items: int = 40, seed: int = 0) -> pd.DataFrame:
    """Right in two subsets as often as `share`, exactly."""
    generator = np.random.default_rng(seed)
    tables = []
    for subset in SUBSETS:
        values = generator.permutation(np.arange(items) < round(share * items))
        tables.append(outcomes(model, values, subset=subset))
    return pd.concat(tables)


def recall(model: str, share: float, items: int = 50) -> pd.DataFrame:
    """Right in the first items."""
    values = np.arange(items) < round(share * items)
    facts = {"benchmark": "COCO", "metric": "text-to-image recall@1", "aspect": "general", "chance": 0.02}
    return outcomes(model, values, **facts)


def report_of(*tables: pd.DataFrame, **changes: Any) -> EvaluationResults:
    """Results of all models in the tables."""
    items = pd.concat(tables, ignore_index=True)
    models = {name: {"path": f"models/{name}"} for name in items["arm"].unique()}
    return EvaluationResults(items, **{"models": models, "averages": AVERAGES, "versions": VERSIONS, **changes})


def benchmark_facts(**changes: Any) -> dict[str, Any]:
    """What an engine knows of SugarCrepe."""
    data = {"place": "somebody/crepe", "commit": "a" * 40, "pools": [{"place": "coco", "commit": None, "pools": []}]}
    facts = {"title": "SugarCrepe", "version": 1, "data": data, "items": 80, "left_out": {"image missing": 3}}
    return {"sugarcrepe": {**facts, **changes}}


def store_folder(folder: Path, *tables: pd.DataFrame, **changes: Any) -> Path:
    """A folder as `hfcomp evaluate` leaves it, but for report and figure."""
    folder.mkdir(parents=True, exist_ok=True)
    write_results(folder / "results.json", evaluation_to_json(report_of(*tables, **changes)))
    Outcomes(pd.concat(tables)).write(folder / "items.parquet")
    return folder
