"""Which kind of model a configuration is of: what scores it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from hfcomp.evaluation.pairs.blip import BlipMatcher
from hfcomp.evaluation.pairs.model import PairModel
from hfcomp.evaluation.pairs.vqascore import VQAScorer
from hfcomp.modeling import base_of_adapter

_MATCHER = "BlipForImageTextRetrieval"


def pair_model(place: str | Path) -> type[PairModel] | None:
    """What scores the model of a Hub id or folder pair by pair; `None` for any other, such as a dual encoder.

    Only the configuration is read: `architectures`, and where it names none `model_type`. Remote code is never run.
    """
    folder = Path(place)
    if (folder.is_dir() and not (folder / "config.json").is_file()) or base_of_adapter(place) is not None:
        return None
    return kind_of(AutoConfig.from_pretrained(place, trust_remote_code=False))


def kind_of(config: Any) -> type[PairModel] | None:
    """As `pair_model`, of a configuration."""
    names = set(getattr(config, "architectures", None) or ())
    known = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    if _MATCHER in names:
        return BlipMatcher
    if names & set(known.values()) or (not names and known.get(getattr(config, "model_type", "")) is not None):
        return VQAScorer
    return None
