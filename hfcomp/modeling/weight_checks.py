"""Whether the weights of a file are all of a model's, and no others: what is missing would be drawn at random."""

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


def check_same(where: str | Path, found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Checks that two sets of tensors have the same names and shapes."""
    shapes = [
        (name, found[name].shape, value.shape)
        for name, value in expected.items()
        if name in found and found[name].shape != value.shape
    ]
    refuse(where, missing=set(expected) - set(found), unused=set(found) - set(expected), shapes=shapes)


def refuse(
    where: str | Path,
    *,
    missing: Sequence[str] | set[str] = (),
    unused: Sequence[str] | set[str] = (),
    shapes: Sequence[tuple[str, Sequence[int], Sequence[int]]] | set[tuple[str, Sequence[int], Sequence[int]]] = (),
) -> None:
    """Raises ValueError if any weights are given, with the first of each kind, their number, and how to fix it."""
    other = [f"{name} {list(found)} in place of {list(expected)}" for name, found, expected in sorted(shapes)]
    kinds = {"miss": sorted(missing), "hold unexpected": sorted(unused), "have another shape in": other}
    parts = [f"{verb} {_first(names)}" for verb, names in kinds.items() if names]
    if parts:
        raise ValueError(
            f"{where}: the weights {' and '.join(parts)}, so they do not belong to this model. {COPY_AGAIN}"
        )


def read_tensors(path: str | Path) -> dict[str, torch.Tensor]:
    with damage_named(path):
        return load_file(path)


@contextmanager
def damage_named(where: str | Path) -> Iterator[None]:
    """Names a damaged file of weights, or the folder or Hub id that a safetensors file belongs to."""
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"{where}: the weights are damaged or truncated ({error}). {COPY_AGAIN}") from error
    except Exception as error:
        # A damaged pickle has no error of its own: half a dozen types are seen, and any other may come. Files are read
        # again, one by one, to find out whether one of them is the cause.
        path = _damaged_pickle(Path(where))
        if path is None:
            raise
        raise ValueError(f"{path}: the weights are damaged or truncated. {COPY_AGAIN}") from error


def _damaged_pickle(folder: Path) -> Path | None:
    """The first pickled file of weights in a folder that cannot be read."""
    for path in sorted((*folder.glob("pytorch_model*.bin"), *folder.glob("adapter_model*.bin"))):
        try:
            load_state_dict(path)  # as transformers reads it: no code is run
        except Exception:  # of a damaged pickle it may be any
            return path
    return None


@contextmanager
def no_report(library: Any = logging) -> Iterator[None]:
    """Keeps bars and warnings of transformers, or of diffusers, from the terminal: hfcomp reports what matters."""
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
    return f"{names[:SHOWN]}" + (f" ({len(names)} in all)" if len(names) > SHOWN else "")
