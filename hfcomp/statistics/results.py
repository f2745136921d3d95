"""The files that hold outcomes and what was made of them.

`results.json` has these keys at the top; a program may add its own, and leaves out what it does not know:

| key | what |
|---|---|
| `schema_version` | `RESULTS_SCHEMA_VERSION`; raised when a key changes its meaning |
| `versions` | of hfcomp and what it runs on, see `versions` |
| `models` | name to `{"path", "weights", "revision"}`, of the first seed; `weights` as `weights_hash` |
| `further_models` | `weights` of the models of further seeds, by seed and name, such as `43/plain` |
| `data` | `training` (dataset, rows, hash of its captions), `evaluation`, `items` (`items_hash` of the outcomes) |
| `benchmarks` | name to `{"title", "version", "data", "items", "left_out"}`, see below |
| `tie_rule` | what a tie counts: `wrong`, `half` or `win`; `items.parquet` holds them as wrong, whatever the rule |
| `skipped` | benchmarks that were asked for and not scored: list of `{"benchmark", "reason", "how_to_fix"}` |
| `missing_averages` | averages omitted because a subset is missing, each with what is `absent` |
| `reference` | the model that differences refer to, where it is one |
| `seconds` | what scoring took: model to benchmark to seconds |
| `config` | what the recipe and the command line set |
| `stages` | cost of each training run |
| `overlap` | of training and scored images: list of `{"policy", "note"}` and what was counted |
| `guard` | of a recipe with a forgetting guard: `items` that chose, and by model `alpha`, `rule` and the `points` |
| `sweep` | of `hfcomp merge --sweep`: the same of its model |
| `notes` | what a reader of the numbers has to know |
| `checksum` | sha256 of all other content: `hfcomp.checksums.read_checked` refuses a file that was changed since |
| `results` | the lines, see `hfcomp.statistics.summarize`; `average` marks means over subsets |
| `published` | published numbers next to the measured ones, each with its `verdict`: `close`, `off` or `differs` |
| `blind` | of an evaluation, what blind rules made of the same items, see below |
| `general_average` | of a recipe's run the mean of its lines of general abilities |

A recipe's run adds, for its cards, `verdict` (sentences), `meanings` (name of the base or a control to what it is),
`published_effects` (published differences between its models), `command`, `processes` and `recipe`, `sources` (field
to what the recipe's comment says of its value), `defaults` (fields of the objective that were not set) with
`default_sources`, and `trainer_classes` (names, the trainer's own first).

Of a benchmark, `title` is what lines go by, `items` the number of rows scored, and `left_out` reason to number of rows
that were not. Its `data` is what was read: `{"place", "commit", "pools"}`, the pools being a list of the same.

`blind` has `rules` (name to words), `skipped` (rule to reason), `captions` (what the bigram model was counted on, by
title and name of the benchmark), `not_applicable` (titles), `items` (`items_hash` of `blind.parquet`), `lines` (of
each rule `value`, `right`, `wrong` and `undecided` items) and `unsolved` (models on the items that no rule of texts
solves, `of` so many; lines as in `results`).

Of a recipe's run one line has `primary`, the name of its primary endpoint, and there the method minus same-batch has
`p_holm` in place of `q`.

Of version 5 are the columns of `hfcomp.statistics.Outcomes` in `items.parquet`, whose `arm` was `model`. Of
version 4 are the mid-p of few images, bounds that agree with p, the formula of `smallest`, averages in runs of
recipes, and `primary`. `hfcomp compare` reads earlier versions too: it recomputes all numbers from the items.

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
    """`hfcomp`, `python`, the packages below it, and `platform`; nothing is imported for it."""
    return {
        "hfcomp": hfcomp.__version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
    }


def versions() -> dict[str, str | int]:
    """What the numbers were made with: `package_versions`, `device` and `threads`."""
    import torch  # takes seconds, and whoever compares stored results does without

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {**package_versions(), "device": device, "threads": torch.get_num_threads()}


def write_results(path: str | Path, results: Mapping[str, Any]) -> None:
    """Writes `results.json`, whole or not at all, with `schema_version`, `checksum`, and `versions` where absent.

    NaN and infinity become `null`, paths text. Raises TypeError for a value that JSON does not know.
    """
    whole = {"schema_version": RESULTS_SCHEMA_VERSION, "versions": results.get("versions") or versions()}
    whole |= {key: value for key, value in results.items() if key not in whole}
    write_json(path, for_json(whole))


def for_json(value: Any) -> Any:
    """A value as JSON knows it: NaN and infinity become `None`, paths text, numbers of numpy plain ones."""
    if isinstance(value, Mapping):
        return {str(key): for_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [for_json(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
