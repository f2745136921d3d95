"""From outcomes per item to lines with intervals, and the files that hold both.

`results.json` has these keys at the top; a program may add its own:

| key | what |
|---|---|
| `schema_version` | `RESULTS_SCHEMA_VERSION`; raised when a key changes its meaning |
| `versions` | of hfcomp and what it runs on, see `versions` |
| `models` | name to `{"path", "weights", "revision"}`; `weights` as `weights_hash` |
| `data` | `training` (data set, rows, hash of its captions), `evaluation`, `items` (`items_hash` of the outcomes) |
| `config` | what the recipe and the command line set |
| `stages` | cost of each training run |
| `notes` | what a reader of the numbers has to know |
| `results` | the lines, see `summarize` |

A number that does not exist (no interval with one image, no chance level) is `null`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import hfcomp
from hfcomp.evaluation.statistics import ImageBootstrap, sign_flip_test, smallest_difference

RESULTS_SCHEMA_VERSION = 2
BASE = "base"
LINE = ["benchmark", "subset", "metric"]
NUMBERS = ("chance", "value")
COLUMNS = (*LINE, "aspect", "chance", "item", "image_id", "value", "tie", "model")
PACKAGES = ("torch", "transformers", "datasets", "accelerate", "numpy")


def summarize(
    items: pd.DataFrame, *, models: list[str], references: list[str], subject: list[str] | None = None
) -> list[dict[str, Any]]:
    """One line per benchmark, subset and metric, with every model's mean and the paired differences.

    Intervals are of 95 % and draw the images of the whole benchmark; see `hfcomp.evaluation.statistics`.

    Args:
        items: one row per item, metric and model, with the columns `benchmark`, `subset`, `metric`, `aspect`
            (`composition` or `general`), `chance` (NaN where there is none), `item`, `image_id`, `value`, `tie` and
            `model`. Models beside `models` are not read.
        models: in the order of the report.
        references: the models that differences refer to.
        subject: the models that are compared to them; by default all but `base`.

    Returns:
        Lines in order of appearance: `benchmark`, `subset`, `metric`, `aspect`, `chance` (`None` where there is
        none), `items`, `images`, `models` (name to `value`, `low`, `high`, `ties`, `tie_rate`) and `differences` (name
        to reference to `value`, `low`, `high`, `p` of the sign-flip test, and `smallest`, the difference that the set
        would find in 80 % of the cases). Bounds are NaN with fewer than two images.

    Raises:
        ValueError: for a missing column, an unknown model, a value that is not finite, or models whose items differ.
    """
    _check(items, models, references, subject)
    subject = [name for name in models if name != BASE] if subject is None else subject
    compared = {name: [other for other in references if other != name] for name in subject}
    items = items[items["model"].isin(models)]
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    for _, benchmark in items.groupby("benchmark", sort=False):
        bootstrap = ImageBootstrap(benchmark["image_id"].to_numpy())
        for key, part in benchmark.groupby(LINE, sort=False):
            lines[key] = _line(key, part, models, compared, bootstrap)
    return [lines[tuple(key)] for key in items[LINE].drop_duplicates().itertuples(index=False)]


def _check(items: pd.DataFrame, models: list[str], references: list[str], subject: list[str] | None) -> None:
    absent = [column for column in COLUMNS if column not in items]
    if absent:
        raise ValueError(f"items: found the columns {list(items.columns)}, expected {absent} too.")
    scored = list(items["model"].unique())
    for name in models:
        if name not in scored:
            raise ValueError(f"models: {name!r} has no items; the table has those of {scored}. Evaluate it first.")
    for argument, names in (("references", references), ("subject", subject or [])):
        for name in names:
            if name not in models:
                raise ValueError(f"{argument}: {name!r} is none of the models {models}. Add it there or drop it.")
    for column in (*LINE, "item", "image_id"):
        if items[column].isna().any():
            row = int(items[column].isna().to_numpy().argmax())
            raise ValueError(f"items: column {column!r}, row {row}: found no value. Every row needs one.")


def _line(
    key: tuple[str, ...],
    part: pd.DataFrame,
    models: list[str],
    compared: dict[str, list[str]],
    bootstrap: ImageBootstrap,
) -> dict[str, Any]:
    values, ties, images = _by_model(part, models, where=" / ".join(map(str, key)))
    bounds = (0.0, 1.0) if values.min() >= 0 and values.max() <= 1 else None
    low, high = bootstrap.interval(values, images, bounds=bounds)
    line = dict(zip(LINE, key, strict=True))
    chance = float(part["chance"].iloc[0])
    line |= {"aspect": part["aspect"].iloc[0], "chance": None if math.isnan(chance) else chance}
    line |= {"items": len(values), "images": len(set(images.tolist()))}
    line["models"] = {
        name: {
            "value": float(values[:, index].mean()),
            "low": float(low[index]),
            "high": float(high[index]),
            "ties": int(ties[:, index].sum()),
            "tie_rate": float(ties[:, index].mean()),
        }
        for index, name in enumerate(models)
    }
    column = {name: values[:, index] for index, name in enumerate(models)}
    line["differences"] = _differences(column, compared, images, bounds, bootstrap)
    return line


def _differences(
    column: dict[str, NDArray[np.float64]],
    compared: dict[str, list[str]],
    images: NDArray[Any],
    bounds: tuple[float, float] | None,
    bootstrap: ImageBootstrap,
) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in compared}
    pairs = [(name, other) for name, others in compared.items() for other in others]
    if not pairs:
        return found
    table = np.stack([column[name] - column[other] for name, other in pairs], axis=1)
    low, high = bootstrap.interval(table, images, bounds=bounds, difference=True)
    numbers = zip(
        pairs,
        table.mean(axis=0).tolist(),
        low.tolist(),
        high.tolist(),
        sign_flip_test(table, images).tolist(),
        smallest_difference(table, images).tolist(),
        strict=True,
    )
    for (name, other), value, below, above, p, smallest in numbers:
        found[name][other] = {"value": value, "low": below, "high": above, "p": p, "smallest": smallest}
    return found


def _by_model(
    part: pd.DataFrame, models: list[str], where: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[Any]]:
    """Values and ties `[items, models]`, and each item's image `[items]`, in the order of the first model's items."""
    of_model = {name: part[part["model"] == name].set_index("item") for name in models}
    first = of_model[models[0]]
    for name, own in of_model.items():
        twice = own.index[own.index.duplicated()]
        if len(twice):
            raise ValueError(f"{where}: item {twice[0]!r} of model {name!r} is there twice. Score each item once.")
        _check_subset(first, own, models[0], name, where)
        _check_subset(own, first, name, models[0], where)
    aligned = {name: own.loc[first.index] for name, own in of_model.items()}
    images = first["image_id"].to_numpy()
    for name, own in aligned.items():
        moved = own["image_id"].to_numpy() != images
        bad = ~np.isfinite(own["value"].to_numpy(dtype=np.float64))
        if moved.any():
            item = first.index[moved][0]
            raise ValueError(f"{where}: item {item!r} has another image for {name!r} than for {models[0]!r}.")
        if bad.any():
            raise ValueError(f"{where}: item {first.index[bad][0]!r} of model {name!r} has no finite value.")
    values = np.stack([own["value"].to_numpy(dtype=np.float64) for own in aligned.values()], axis=1)
    ties = np.stack([own["tie"].to_numpy(dtype=bool) for own in aligned.values()], axis=1)
    return values, ties, images


def _check_subset(table: pd.DataFrame, other: pd.DataFrame, has: str, lacks: str, where: str) -> None:
    absent = table.index.difference(other.index)
    if len(absent):
        raise ValueError(
            f"{where}: item {absent[0]!r} is there for model {has!r} and missing for {lacks!r} ({len(absent):,} such "
            "items). Score all models on the same items."
        )


def versions() -> dict[str, str | int]:
    """What the numbers were made with: `hfcomp`, `python`, the packages below it, `platform`, `device`, `threads`."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {
        "hfcomp": hfcomp.__version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "device": device,
        "threads": torch.get_num_threads(),
    }


def weights_hash(place: str | Path) -> str:
    """Short content hash of a model's weights: `sha256:` and the first 16 digits of `cat *.safetensors | sha256sum`.

    Args:
        place: a folder, whose `*.safetensors` are read in the order of their names, or one file.

    Raises:
        ValueError: where there is no such file.
    """
    place = Path(place)
    files = [place] if place.is_file() else sorted(place.glob("*.safetensors"))
    if not files:
        raise ValueError(
            f"{place}: found no *.safetensors. Give the folder that save_pretrained wrote; for a model of the Hub, "
            "the revision says which weights it has."
        )
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return f"sha256:{digest.hexdigest()[:16]}"


def items_hash(items: pd.DataFrame) -> str:
    """Short content hash of a table of items; the order of its rows and columns does not change it."""
    table = pd.DataFrame({name: _plain(items[name]) for name in sorted(items.columns)})
    digest = hashlib.sha256(repr(list(table.columns)).encode())
    for row in sorted(map(repr, table.itertuples(index=False, name=None))):
        digest.update(row.encode() + b"\n")
    return f"sha256:{digest.hexdigest()[:16]}"


def _plain(column: pd.Series) -> pd.Series:
    """Numbers as float and all else as text, so that a table read back from Parquet is the same table."""
    column = column.reset_index(drop=True)
    return column.astype(float) if column.name in NUMBERS else column.astype(str)


def write_results(path: str | Path, results: Mapping[str, Any]) -> None:
    """Writes `results.json`, whole or not at all; `schema_version`, and `versions` where absent, are added.

    Args:
        path: of the file.
        results: the keys that the module lists. NaN and infinity become `null`, paths text.

    Raises:
        TypeError: for a value that JSON does not know.
    """
    whole = {"schema_version": RESULTS_SCHEMA_VERSION, "versions": results.get("versions") or versions()}
    whole |= {key: value for key, value in results.items() if key not in whole}
    text = json.dumps(_for_json(whole), indent=2, ensure_ascii=False, allow_nan=False)
    path, partial = _places(path)
    partial.write_text(text + "\n", encoding="utf-8")
    os.replace(partial, path)


def write_items(path: str | Path, items: pd.DataFrame) -> None:
    """Writes the table of items as Parquet, whole or not at all."""
    path, partial = _places(path)
    items.to_parquet(partial, index=False)
    os.replace(partial, path)


def _places(path: str | Path) -> tuple[Path, Path]:
    path = Path(path)
    return path, path.with_name(f"{path.name}.part")


def _for_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _for_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
