"""Loading of models that are no dual encoders: weights whole, in fp32, without code of their authors."""

from __future__ import annotations

import torch
from torch import nn
from transformers import AutoModel

from hfcomp.evaluation.models import check_device
from hfcomp.modeling.weight_checks import damage_named, no_report
from hfcomp.reading import check_place

POOLER = "pooler"
"""In names of weights that neither score reads, and that many checkpoints lack."""


def find_device(device: str | None) -> torch.device:
    """The device of a name, by default a GPU where there is one; ValueError for one that is not there."""
    check_device(device)
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def load_model(place: str, *, needed_by: str) -> nn.Module:
    """A model by Hub id or folder, in eval mode.

    Args:
        place: Hub id or folder.
        needed_by: what errors call its use.

    Raises:
        ValueError: for a place without a model, damaged weights, or weights that the model needs and the file lacks:
            transformers would make them up at random.
    """
    check_place(place, needed_by)
    try:
        with no_report(), damage_named(place):
            model, loading = AutoModel.from_pretrained(
                place, dtype=torch.float32, trust_remote_code=False, use_safetensors=True, output_loading_info=True
            )
    except (OSError, ValueError) as error:  # no such model, another kind of folder, damaged weights
        raise ValueError(f"{needed_by}: {place} could not be loaded: {error}") from error
    missing = sorted(key for key in loading["missing_keys"] if POOLER not in key)
    if missing:
        raise ValueError(f"{needed_by}: {place} lacks the weights {missing[:3]} ({len(missing)} in all).")
    return model.eval()
