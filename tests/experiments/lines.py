"""Lines of results as `hfcomp.statistics.results` makes them, of a run with every control."""

from __future__ import annotations

from typing import Any

from hfcomp.trainers.cost import RESIDENT, StageSummary

MODELS = ("base", "plain", "same-batch", "shuffled", "equal-images", "Slipform")
# Shares of MODELS.
GROUP = {
    "swap_att": (0.035, 0.218, 0.51, 0.31, 0.25, 0.94),
    "replace_att": (0.943, 0.975, 0.98, 0.96, 0.97, 0.98),
    "replace_size": (0.193, 0.1, 0.25, 0.12, 0.15, 0.048),
    "replace_obj": (0.935, 0.938, 1.0, 0.94, 0.94, 0.965),
    "replace_rel": (0.0, 0.0, 0.002, 0.0, 0.0, 0.002),
    "swap_obj": (0.005, 0.003, 0.01, 0.005, 0.005, 0.005),
}
GENERAL = {
    "text-to-image recall@1": (0.612, 0.64, 0.65, 0.63, 0.66, 0.576),
    "image-to-text recall@1": (0.63, 0.68, 0.66, 0.65, 0.67, 0.774),
}


def interval(value: float, half: float) -> dict[str, float]:
    return {"value": value, "low": value - half, "high": value + half}


def line(subset: str, metric: str, shares: tuple[float, ...], *, general: bool = False, **changes: Any) -> dict:
    models = dict(zip(MODELS, shares, strict=True))
    differences: dict[str, dict[str, Any]] = {}
    for name, value in models.items():
        references = ("base",) if name != MODELS[-1] else MODELS[:-1]
        differences[name] = {
            reference: {**interval(value - models[reference], 0.022), "p": 0.0004, "q": 0.0009, "smallest": 0.031}
            for reference in references
            if reference != name
        }
    return {
        "benchmark": "sandbox retrieval" if general else "sandbox",
        "subset": subset,
        "metric": metric,
        "aspect": "general" if general else "composition",
        "chance": 0.002 if general else {"group": 1 / 6}.get(metric, 0.5),
        "items": 500 if general else 400,
        "images": 500 if general else 400,
        "models": {name: {**interval(value, 0.021), "ties": 0, "tie_rate": 0.0} for name, value in models.items()},
        "differences": {name: part for name, part in differences.items() if part},
        **changes,
    }


def average_of(lines: list[dict], **changes: Any) -> dict:
    """The mean over subsets of one metric, whose interval is no narrower than a line's."""
    rows = [tuple(share["value"] for share in part["models"].values()) for part in lines]
    shares = tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))
    first, groups = lines[0], [[part["subset"]] for part in lines]
    about = {"average": True, "groups": groups, "pooled": False, "benchmark": first["benchmark"], **changes}
    return line("average", first["metric"], shares, general=first["aspect"] == "general", **about)


def all_lines() -> list[dict]:
    choices = [line(kind, "caption choice", tuple(0.5 + 0.5 * share for share in row)) for kind, row in GROUP.items()]
    groups = [line(kind, "group", row) for kind, row in GROUP.items()]
    general = [line("all", metric, row, general=True) for metric, row in GENERAL.items()]
    return [*choices, *groups, *general, average_of(choices), average_of(groups, primary="sandbox: average group")]


def general_average() -> dict:
    """As `summarize_run` gives it beside the lines."""
    return average_of([line("all", "recall", row, general=True) for row in GENERAL.values()])


def without(lines: list[dict], *names: str) -> list[dict]:
    """The lines of a run that did not train some controls."""
    kept = []
    for entry in lines:
        models = {name: share for name, share in entry["models"].items() if name not in names}
        differences = {
            name: {other: share for other, share in part.items() if other not in names}
            for name, part in entry["differences"].items()
            if name not in names
        }
        kept.append({**entry, "models": models, "differences": differences})
    return kept


def stages() -> list[StageSummary]:
    return [
        StageSummary(
            name=name,
            steps=12_500,
            images=12_800_000,
            texts=25_600_000,
            seconds=18_432.17,
            images_per_second=1_152.73,
            peak_memory_gib=39.52,
            peak_memory_of=RESIDENT,
            loss=0.6422,
            truncated_text_share=0.0123,
        )
        for name in MODELS
    ]


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "hfcomp_version": "0.0",
        "method": "Slipform",
        "models": {name: {"path": f"/home/somebody/runs/a b/{name}"} for name in MODELS},
        "caveat": "Synthetic: a drawn world and a tiny model.",
        "notes": ["8,000 rows of /home/somebody/data/pairs"],
        "general_average": general_average(),
        "config": {"model": None, "dataset": "sandbox", "batch_size": 64, "output_dir": "/home/somebody/runs/a b"},
        **changes,
    }
