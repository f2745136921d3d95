"""The files that hold outcomes and the results computed from them.

`results.json` has these top-level keys. A program may add its own keys, and omits those that it does not know:

| key | content |
|---|---|
| `schema_version` | `RESULTS_SCHEMA_VERSION`; raised when a key changes its meaning |
| `versions` | versions of hfcomp and its environment, see `versions` |
| `models` | name to `{"path", "weights", "revision"}`, for the first seed; `weights` as in `weights_hash` |
| `further_models` | `weights` of the models of further seeds, by seed and name, such as `43/plain` |
| `data` | `training` (dataset, rows, hash of its captions), `evaluation`, `items` (`items_hash` of the outcomes) |
| `benchmarks` | name to `{"title", "version", "data", "items", "left_out"}`, see below |
| `tie_rule` | value of a tie: `wrong`, `half` or `win`; `items.parquet` stores ties as wrong under every rule |
| `skipped` | benchmarks that were requested but not scored: list of `{"benchmark", "reason", "how_to_fix"}` |
| `missing_averages` | averages omitted because a subset is missing, each with the missing parts in `absent` |
| `reference` | the model that differences refer to, if there is exactly one |
| `seconds` | scoring time: model to benchmark to seconds |
| `config` | settings of the recipe and the command line |
| `stages` | cost of each training run |
| `overlap` | overlap of training and scored images: list of `{"policy", "note"}` and counts |
| `guard` | for a recipe with a forgetting guard: `items` that chose, and per model `alpha`, `rule` and the `points` |
| `sweep` | for `hfcomp merge --sweep`: the same for its model |
| `notes` | notes that a reader of the numbers must know |
| `checksum` | sha256 of all other content: `hfcomp.checksums.read_checked` rejects a file that was changed since |
| `results` | the lines, see `hfcomp.statistics.summarize`; `average` marks means over subsets |
| `published` | published numbers next to the measured ones, each with its `verdict`: `close`, `off` or `differs` |
| `blind` | for an evaluation, the results of blind rules on the same items, see below |
| `general_average` | for a recipe's run, the mean of its lines of general abilities |

A model with code of its own that was run also has `remote_code`: the SHA-256 of each Python file.

A recipe's run adds, for its cards, `verdict` (sentences), `meanings` (name of the base or a control to its meaning),
`published_effects` (published differences between its models), `command`, `processes` and `recipe`, `sources` (field
to the recipe's comment on its value), `defaults` (fields of the objective that were not set) with `default_sources`,
and `trainer_classes` (names, the trainer's own first).

For a benchmark, `title` is the name used in lines, `items` the number of rows scored, and `left_out` maps a reason to
the number of rows that were left out. Its `data` is what was read: `{"place", "commit", "pools"}`, where pools is a
list of the same.

`blind` has `rules` (name to description), `skipped` (rule to reason), `captions` (the source of the bigram model's
counts, by title and name of the benchmark), `not_applicable` (titles), `items` (`items_hash` of `blind.parquet`),
`lines` (per rule `value`, `right`, `wrong` and `undecided` items) and `unsolved` (models on the items that no text
rule solves, with their total in `of`; lines as in `results`).

In a recipe's run, one line has `primary`, the name of its primary endpoint. There the method minus same-batch has
`p_holm` instead of `q`.

Version 5 introduced the columns of `hfcomp.statistics.Outcomes` in `items.parquet`, whose `arm` was `model` before.
Version 4 introduced the mid-p for few images, bounds that agree with p, the formula of `smallest`, averages in runs of
recipes, and `primary`. `hfcomp compare` also reads earlier versions: it recomputes all numbers from the items.

A number that does not exist (no interval with one image, no chance level) is `null`.
"""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import hfcomp
from hfcomp.writing import write_json

RESULTS_SCHEMA_VERSION = 5
ITEMS_FILE = "items.parquet"
RESULTS_FILE = "results.json"
PACKAGES = ("torch", "transformers", "datasets", "accelerate", "numpy")


def package_versions() -> dict[str, str | int]:
    """Versions of `hfcomp`, `python` and its main dependencies, and the `platform`, without importing them."""
    return {
        "hfcomp": hfcomp.__version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
    }


def versions() -> dict[str, str | int]:
    """The environment of the numbers: `package_versions`, `device` and `threads`."""
    import torch  # takes seconds, and comparing stored results does not need it

    from hfcomp.devices import device_name

    return {**package_versions(), "device": device_name(), "threads": torch.get_num_threads()}


def write_results(path: str | Path, results: Mapping[str, Any]) -> None:
    """Writes `results.json` atomically, with `schema_version`, `checksum`, and `versions` if missing.

    NaN and infinity become `null`, and paths become text. Raises TypeError for a value that JSON does not support.
    """
    content = {"schema_version": RESULTS_SCHEMA_VERSION, "versions": results.get("versions") or versions()}
    content |= {key: value for key, value in results.items() if key not in content}
    write_json(path, for_json(content))


def for_json(value: Any) -> Any:
    """Converts a value for JSON: NaN and infinity to `None`, paths to text, NumPy numbers to plain ones."""
    if isinstance(value, Mapping):
        return {str(key): for_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [for_json(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
