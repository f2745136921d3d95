"""Checks that a file contains exactly a model's weights, because missing ones would be initialized at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers.modeling_utils import load_state_dict
from transformers.utils import logging

SHOWN = 3
COPY_AGAIN = "Download or copy it again, or save the model again with save_pretrained."


class OtherNetwork(ValueError):
    """Raised for a checkpoint of a network that transformers does not have."""


def check_same(where: str | Path, actual: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Checks that two sets of tensors have the same names and shapes."""
    shapes = [
        (name, actual[name].shape, value.shape)
        for name, value in expected.items()
        if name in actual and actual[name].shape != value.shape
    ]
    raise_on_mismatch(where, missing=set(expected) - set(actual), unused=set(actual) - set(expected), shapes=shapes)


def raise_on_mismatch(
    where: str | Path,
    *,
    missing: Sequence[str] | set[str] = (),
    unused: Sequence[str] | set[str] = (),
    shapes: Sequence[tuple[str, Sequence[int], Sequence[int]]] | set[tuple[str, Sequence[int], Sequence[int]]] = (),
) -> None:
    """Raises ValueError if any weights are given, with the first of each kind, their number, and the fix."""
    other = [f"{name} {list(actual)} instead of {list(expected)}" for name, actual, expected in sorted(shapes)]
    kinds = {"lack": sorted(missing), "contain unexpected": sorted(unused), "have a different shape in": other}
    parts = [f"{verb} {_first(names)}" for verb, names in kinds.items() if names]
    if parts:
        raise ValueError(f"{where}: the weights {' and '.join(parts)}, so they do not match this model. {COPY_AGAIN}")


def read_tensors(path: str | Path) -> dict[str, torch.Tensor]:
    with name_damaged_weights(path):
        return load_file(path)


@contextmanager
def name_damaged_weights(where: str | Path) -> Iterator[None]:
    """Adds the name of a damaged weights file to errors, or the folder or Hub id of a safetensors file."""
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"{where}: the weights are damaged or truncated ({error}). {COPY_AGAIN}") from error
    except Exception as error:
        # Damaged pickles raise no specific error: half a dozen types were observed, and any other is possible. So read
        # the files again, one by one, to find out whether one of them is the cause.
        path = _damaged_pickle(Path(where))
        if path is None:
            raise
        raise ValueError(f"{path}: the weights are damaged or truncated. {COPY_AGAIN}") from error


def _damaged_pickle(folder: Path) -> Path | None:
    """Returns the first pickled weights file in a folder that cannot be read."""
    for path in sorted((*folder.glob("pytorch_model*.bin"), *folder.glob("adapter_model*.bin"))):
        try:
            load_state_dict(path)  # the same reader as in transformers, which runs no code
        except Exception:  # a damaged pickle may raise any error
            return path
    return None


@contextmanager
def silence_library(library: Any = logging) -> Iterator[None]:
    """Hides progress bars and warnings of transformers or diffusers, because hfcomp itself reports what matters."""
    level, bar = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(level)
        if bar:
            library.enable_progress_bar()


def _first(names: Sequence[str]) -> str:
    return f"{names[:SHOWN]}" + (f" ({len(names)} in total)" if len(names) > SHOWN else "")
