"""What all builds of `hfcomp build` begin with: the source's rows under the contract's names, and names of models."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import torch
from datasets import Dataset, Features, Image, Value

from hfcomp.data.columns import rename_columns, require_columns
from hfcomp.data.loading import load_training_set
from hfcomp.evaluation.identity import identity
from hfcomp.hub import without_local_paths

Tell = Callable[[str], None]


def read_rows(options: argparse.Namespace, tell: Tell) -> Dataset:
    """The rows of the source, under the contract's names.

    Args:
        options: of the command.
        tell: receives a line about what was read.

    Raises:
        ValueError: for a split or column that is not there, or a limit below 1.
    """
    if options.limit is not None and options.limit < 1:
        raise ValueError(f"--limit: found {options.limit}, expected 1 or more.")
    try:
        dataset = load_training_set(options.source, split=options.split, config=options.config)
    except StopIteration as error:  # what `datasets` raises for a file without a line
        raise ValueError(f"{options.source} has no rows.") from error
    tell(f"{len(dataset):,} rows from {options.source}")
    dataset = rename_columns(dataset, column_names(options.column_names))
    kept = kept_columns(dataset, options.columns)
    if "image" in kept and dataset.features["image"] in (Value("string"), Value("large_string")):
        raise ValueError(
            f"column 'image' of {options.source} holds texts, expected images. In a JSON-lines or CSV file the column "
            "of file names has to be called image there; or build without it: --columns caption."
        )
    return dataset if options.limit is None else dataset.select(range(min(options.limit, len(dataset))))


def column_names(text: str) -> dict[str, str]:
    """`caption=text,image=photo`, or the JSON object that recipes take, as a mapping.

    Raises:
        ValueError: for anything else.
    """
    expected = """expected hfcomp's name=the set's own, as caption=text, or JSON, as '{"caption": "text"}'."""
    if text.lstrip().startswith("{"):
        try:
            names = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"--column_names: {text!r} is no JSON ({error}); {expected}") from error
        if not all(isinstance(own, str) and own for own in names.values()):
            raise ValueError(f"--column_names: found {text!r}, {expected}")
        return names
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    wrong = ["".join(pair) for pair in pairs if not pair[0].strip() or not pair[2].strip()]
    if wrong:
        raise ValueError(f"--column_names: found {wrong[0]!r}, {expected}")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def kept_columns(dataset: Dataset, asked: str | None) -> list[str]:
    """The source's columns that the built set has: those asked for, or all."""
    if asked is None:
        return dataset.column_names
    names = [name.strip() for name in asked.split(",") if name.strip()]
    require_columns(dataset, names, needed_by="--columns")
    return list(dict.fromkeys(names))


def check_device(device: str | None) -> None:
    """Raises ValueError for a device that is not there."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device: {device!r} cannot be used here: {str(error).splitlines()[0]}") from error


def shown_features(dataset: Dataset) -> Features:
    """The features of a set whose images are decoded when they are read."""
    return Features({name: Image() if isinstance(one, Image) else one for name, one in dataset.features.items()})


def model_facts(place: str) -> str:
    """A model's name and what tells its weights from others."""
    try:
        return f"{without_local_paths(place)} ({identity(place)})"
    except OSError as error:
        raise OSError(f"the model {place!r} is no folder and could not be had: {error} Pass a folder.") from error
