"""What a command leaves for its user as one JSON value, kept in a file and compared with it.

Left out are times, memory, dates, versions, places on the disk and hashes of files: their keys stay, their values
become `LEFT_OUT`. All else is compared exactly, but for numbers: those that passed through float32 within what another
order of summation changes (`tests/tolerances.py`), the rest to 1e-9.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
import transformers
import yaml
from packaging.version import Version

from tests import tolerances

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[1]
LEFT_OUT = "..."
# transformers and datasets themselves wrote parts of some files: names of classes, keys, types of columns.
needs_newer_libraries = pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.19") or Version(datasets.__version__) < Version("5"),
    reason="the files were recorded with transformers >= 5.19 and datasets >= 5",
)
OMITTED = {
    *("checksum", "command", "date", "hfcomp_version", "versions", "weights"),
    *("images_per_second", "peak_memory_gib", "peak_memory_of", "seconds"),
}
EXACT = 1e-9
# above the scale of the sandbox's CLIP, 23.9. Its towers have 3 times the roundings that `tests/tolerances.py` counts,
# in embeddings that are 4 times as wide: the bound of a cosine is the same
SCALE = 24.0
BY_MODELS = "by models"
"""A key above what is counted of embeddings: logit gaps, their intervals, curves."""
STUDENTIZED = 10
"""Standard errors that the end of an interval over a dozen images may lie from its mean."""
WIDTH = 160
MOST_LINES = 20


def contents(folder: Path, root: Path) -> dict[str, Any]:
    """What lies at the top of a folder of results, by file.

    Args:
        folder: that a command wrote.
        root: above it and all that the command was given, which paths in the files begin with.
    """
    files: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".json" and path.name != "overlap.json":  # what it says is in the other one
            files[path.name] = json.loads(path.read_text(encoding="utf-8"))
        elif path.name == "best.yaml":
            files[path.name] = yaml.safe_load(path.read_text(encoding="utf-8"))
        elif path.name == "trials.csv":
            files[path.name] = pd.read_csv(path).to_dict("records")
        elif path.name == "items.parquet":
            files[path.name] = _items(pd.read_parquet(path))
    return comparable(files, root)


def _items(table: pd.DataFrame) -> dict[str, Any]:
    """The columns, and of each line the items' values in order, a digit each where all are 0 or 1."""
    lines = {}
    for names, line in table.groupby(["arm", "benchmark", "subset", "metric"], sort=False):
        values = line["value"].tolist()
        shown = "".join(f"{value:.0f}" for value in values) if set(values) <= {0.0, 1.0} else values
        named = hashlib.sha256("\n".join(line["item"] + " " + line["image_id"]).encode()).hexdigest()[:16]
        lines[" | ".join(names)] = {"values": shown, "ties": int(line["tie"].sum()), "items and images": named}
    return {"columns": list(table.columns), "lines": lines}


def comparable(value: Any, root: Path) -> Any:
    """A JSON value without what differs from run to run and from machine to machine."""
    return _comparable(value, {str(root): "<folder>", str(REPOSITORY): "<repository>"})


def _comparable(value: Any, places: dict[str, str], key: str = "") -> Any:
    if key in OMITTED:
        return LEFT_OUT
    if isinstance(value, dict):
        return {name: _comparable(inner, places, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_comparable(inner, places) for inner in value]
    if not isinstance(value, str):
        return value
    if key == "items" and value.startswith("sha256:"):
        return LEFT_OUT
    for place, name in places.items():
        value = value.replace(place, name)
    return re.sub(r"\bftfy [\d.]+", "ftfy", value)


def check(name: str, actual: Any, *, write: bool) -> None:
    """Compares with the file of that name, or writes it anew.

    Raises:
        AssertionError: naming the first places that differ, with both values.
    """
    path = FOLDER / f"{name}.json"
    golden = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    if write:
        path.write_text(_text(round_values(golden, actual)) + "\n", encoding="utf-8")
        return
    lines = list(differences(golden, actual))
    if len(lines) > MOST_LINES:
        lines[MOST_LINES - 1 :] = [f"... and {len(lines) - MOST_LINES + 1} more"]
    if lines:
        raise AssertionError("\n".join([f"{path.name}, written -> found:", *lines]))


def differences(golden: Any, actual: Any, path: str = "") -> Iterator[str]:
    """A line for each place that differs: its path, what the file holds and what was found."""
    if isinstance(golden, dict) and isinstance(actual, dict):
        for key in dict.fromkeys([*golden, *actual]):
            if key in golden and key in actual:
                yield from differences(golden[key], actual[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}: {_short(golden, key)} -> {_short(actual, key)}"
        if golden.keys() == actual.keys() and list(golden) != list(actual):
            yield f"{path}: the order of the keys, {', '.join(golden)} -> {', '.join(actual)}"
    elif isinstance(golden, list) and isinstance(actual, list):
        if len(golden) != len(actual):
            yield f"{path}: {len(golden)} entries -> {len(actual)}"
        for index, (before, after) in enumerate(zip(golden, actual, strict=False)):
            yield from differences(before, after, f"{path}/{index}")
    elif not _same(golden, actual, path):
        yield f"{path}: {_short({0: golden}, 0)} -> {_short({0: actual}, 0)}"


def _same(golden: Any, actual: Any, path: str) -> bool:
    if isinstance(golden, float) and isinstance(actual, float) and math.isfinite(golden):
        return abs(golden - actual) <= _tolerance(path.split("/")) * max(1.0, abs(golden))
    return type(golden) is type(actual) and (golden == actual or repr(golden) == repr(actual))  # nan is nan


def _tolerance(keys: list[str]) -> float:
    """Tolerance of the numbers at a path, relative to those above 1."""
    if "embeddings.json" in keys and "nearest" not in keys:
        # both embeddings are off, one of them as a sum of three that is about as long as one
        return (1 + math.sqrt(3)) * tolerances.trained_embedding(SCALE)
    if BY_MODELS in keys:
        return (1 + STUDENTIZED) * tolerances.loss(SCALE)
    if "logged" in keys or keys[-1] == "loss":
        return tolerances.loss(SCALE) + tolerances.gradient(SCALE)
    return EXACT


def _short(values: dict[Any, Any], key: Any) -> str:
    text = json.dumps(values[key], ensure_ascii=False) if key in values else "nothing"
    return text if len(text) <= 60 else f"{text[:57]}..."


def round_values(golden: Any, actual: Any, path: str = "") -> Any:
    """The new value in 10 digits; a number within its tolerance stays as it was, so a diff does not show it."""
    if isinstance(actual, dict):
        before = golden if isinstance(golden, dict) else {}
        return {key: round_values(before.get(key), inner, f"{path}/{key}") for key, inner in actual.items()}
    if isinstance(actual, list):
        before = golden if isinstance(golden, list) and len(golden) == len(actual) else [None] * len(actual)
        pairs = enumerate(zip(before, actual, strict=True))
        return [round_values(previous, inner, f"{path}/{index}") for index, (previous, inner) in pairs]
    if isinstance(actual, float):
        return golden if _same(golden, actual, path) else float(f"{actual:.10g}")
    return actual


def _text(value: Any, depth: int = 0) -> str:
    """JSON in which what holds no other dictionary or list is one line, where there is room."""
    inner = list(value.values() if isinstance(value, dict) else value) if isinstance(value, (dict, list)) else []
    line = json.dumps(value, ensure_ascii=False)
    if not inner or (len(line) + depth < WIDTH and not any(isinstance(item, (dict, list)) for item in inner)):
        return line
    names = (
        [f"{json.dumps(key, ensure_ascii=False)}: " for key in value] if isinstance(value, dict) else [""] * len(inner)
    )
    parts = [f"{' ' * (depth + 1)}{name}{_text(value, depth + 1)}" for name, value in zip(names, inner, strict=True)]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([first, ",\n".join(parts), " " * depth + last])
