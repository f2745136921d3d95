"""Joins an image model and a text model into a dual encoder, for training with a frozen image tower (LiT)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer, VisionTextDualEncoderConfig
from transformers import VisionTextDualEncoderModel as JoinedModel
from transformers import VisionTextDualEncoderProcessor as JoinedProcessor

from hfcomp.convert.convert import RECORD_FILE, check_folder, library_versions
from hfcomp.modeling import encode_images, encode_texts
from hfcomp.modeling.backbones import read_config
from hfcomp.modeling.embedding import blank_images
from hfcomp.modeling.weight_checks import name_damaged_weights, raise_on_mismatch, silence_library
from hfcomp.writing import replacing_folder, write_json

_POOLER = "pooler."
_POOLED = (
    "Both models need a pooled output. Known to have one: ViT with pooler weights, DINOv2 and the towers of CLIP and "
    "SigLIP for images, BERT and its relatives for texts"
)


def join_towers(image: str | Path, text: str | Path, folder: Path, *, seed: int = 0) -> dict[str, Any]:
    """Joins two towers into a `VisionTextDualEncoderModel` with its processor.

    An image's embedding is the image model's own pooled output, since its projection is the identity. The projection
    of texts to this space is new. If the text model has no pooler (RoBERTa), that is new too. Source: Zhai et al.,
    "LiT: Zero-Shot Transfer with Locked-image text Tuning", CVPR 2022, arXiv:2111.07991; the missing image projection
    and the initial scale of 10 are those of its released code.

    Args:
        image: Hub id or folder of an image model, or of a dual encoder whose image tower is used.
        text: Hub id or folder of a text encoder.
        folder: Output folder. Created if missing; replaced if an earlier conversion wrote it.
        seed: Random seed of the new weights.

    Returns:
        The content of `conversion.json`; `new` lists the weights that must be trained.

    Raises:
        ValueError: If a model lacks weights or a pooled output, or the folder contains other files.
    """
    check_folder(folder)
    config = read_config(image)
    vision, _ = _load(image, getattr(config, "vision_config", config))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        words, new = _load(text, read_config(text), may_lack=_POOLER)
        try:
            model = _join(vision, words)
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{image} and {text} cannot be joined ({error}). {_POOLED}.") from error
    images = AutoImageProcessor.from_pretrained(image, trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(text, trust_remote_code=False)
    record = {
        "source": f"{Path(image).name} and {Path(text).name}",
        "layout": "image and text tower",
        "model": type(model).__name__,
        "new": ["text_projection.weight", *(f"text_model.{name}" for name in new)],
        "versions": library_versions(),
    }
    with replacing_folder(folder) as part:
        model.save_pretrained(part)
        JoinedProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(part)
        write_json(part / RECORD_FILE, record)
    return record


def _load(source: str | Path, config: Any, *, may_lack: str | None = None) -> tuple[nn.Module, list[str]]:
    """Loads a tower; returns it with the names of missing weights, which all begin with `may_lack`."""
    settings = {"dtype": torch.float32, "use_safetensors": True, "ignore_mismatched_sizes": True}
    with name_damaged_weights(source), silence_library():
        tower, info = AutoModel.from_pretrained(
            source, config=config, trust_remote_code=False, output_loading_info=True, **settings
        )
    missing = sorted(info["missing_keys"])
    required = [name for name in missing if may_lack is None or not name.startswith(may_lack)]
    if required and all(name.startswith(_POOLER) for name in required):
        raise ValueError(f"{source}: its pooler has no weights, so its pooled output is random. {_POOLED}.")
    raise_on_mismatch(source, missing=required, shapes=info["mismatched_keys"])
    return tower, missing


def _join(vision: nn.Module, words: nn.Module) -> JoinedModel:
    settings = {"projection_dim": vision.config.hidden_size, "logit_scale_init_value": math.log(10)}
    config = VisionTextDualEncoderConfig.from_vision_text_configs(vision.config, words.config, **settings)
    # A new model is filled, because its class is the one with which the folder will be loaded.
    model = JoinedModel(config).eval()
    model.vision_model.load_state_dict(vision.state_dict())
    model.text_model.load_state_dict(words.state_dict())
    nn.init.eye_(model.visual_projection.weight)
    with torch.inference_mode():
        encode_images(model, blank_images(config, 1))
        encode_texts(model, torch.ones((1, 3), dtype=torch.long))
    return model
