"""Tables of how results were made: costs of stages, facts of models, settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from hfcomp.reporting.report import Table


def costs(stages: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the costs of training runs: the entries of `StageSummary` that are known for all of them."""
    columns = {
        "run": "{name}",
        "steps": "{steps:,.0f}",
        "images": "{images:,.0f}",
        "texts": "{texts:,.0f}",
        "seconds": "{seconds:,.1f}",
        "images/s": "{images_per_second:,.1f}",
        "peak memory": "{peak_memory_gib:.2f} GiB, {peak_memory_of}",
        "last loss": "{loss:.4f}",
        "texts truncated": "{truncated_text_share:.2%}",
    }
    known = set.intersection(*map(set, stages)) if stages else set()
    kept = {name: form for name, form in columns.items() if set(re.findall(r"{(\w+)", form)) <= known}
    return Table("", list(kept), [[form.format(**stage) for form in kept.values()] for stage in stages])


def mean_stages(stages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Means of the entries of `StageSummary` over runs whose names are equal after the last slash."""
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for stage in stages:
        runs.setdefault(stage["name"].rpartition("/")[2], []).append(stage)
    means = []
    for name, own in runs.items():
        numbers = [key for key, value in own[0].items() if isinstance(value, int | float)]
        means.append({**own[0], **{key: fmean(stage[key] for stage in own) for key in numbers}, "name": name})
    return means


def facts_table(entries: Mapping[str, Mapping[str, Any]]) -> Table:
    """Returns a table with one row per model; only facts that some model has get a column."""
    keys = list(dict.fromkeys(key for facts in entries.values() for key, value in facts.items() if value is not None))
    rows = [
        [name, *("" if facts.get(key) is None else str(facts[key]) for key in keys)] for name, facts in entries.items()
    ]
    return Table("", ["model", *keys], rows, labels=1 + len(keys))


def made_table(*parts: Mapping[str, Any]) -> Table:
    """Names and values that document how a result was made, if they are set, without secrets."""
    known = {name: value for part in parts for name, value in part.items() if value is not None}
    rows = [[name, str(value)] for name, value in known.items() if "token" not in name]
    return Table("", ["what", "value"], rows, labels=2)
