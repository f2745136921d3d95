"""A CLIP of transformers as a folder that open_clip loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from transformers import CLIPModel

from hfcomp import __version__
from hfcomp.modeling.backbones import load_backbone, load_processor
from hfcomp.modeling.conversion.checkpoint_file import CONFIG_FILE, WEIGHTS_FILE
from hfcomp.modeling.conversion.clip_layout import clip_table, model_config
from hfcomp.modeling.conversion.convert import RECORD_FILE, check_folder
from hfcomp.modeling.conversion.preprocessing import preprocess_config
from hfcomp.modeling.conversion.weight_table import from_transformers
from hfcomp.writing import replacing, replacing_folder, write_json, write_text

_CLIP_TOKENS = 49_408


def export_open_clip(model: str | Path, folder: Path) -> dict[str, Any]:
    """Writes a CLIP in open_clip's layout: `open_clip_config.json` and `open_clip_model.safetensors`.

    open_clip loads the folder as `local-dir:FOLDER`, and as `hf-hub:NAME` once it is pushed. Weights keep their values
    and type.

    Args:
        model: Hub id or folder of a `CLIPModel`.
        folder: is made, or replaced where an earlier conversion wrote it.

    Returns:
        The content of `conversion.json`; its `note` says what open_clip still needs, if anything.

    Raises:
        ValueError: for another model, an adapter, or one that open_clip has no settings for.
    """
    check_folder(folder)
    backbone = load_backbone(model, dtype="auto")
    if not isinstance(backbone, CLIPModel):
        kind = type(backbone).__name__
        hint = " Merge the adapter first (hfcomp.merge_adapter)." if hasattr(backbone, "peft_config") else ""
        raise ValueError(f"{model}: found a {kind}; only a CLIPModel is written in open_clip's layout.{hint}")
    processor, config = load_processor(model, argument="model"), backbone.config
    _check_end_of_text(model, processor.tokenizer, config.text_config)
    layers = [tower.num_hidden_layers for tower in (config.vision_config, config.text_config)]
    tensors = from_transformers(clip_table("", *layers), backbone.state_dict())
    settings = {
        "model_cfg": model_config(config),
        "preprocess_cfg": preprocess_config(processor, config.vision_config.image_size),
    }
    record = _record(model, config)
    with replacing_folder(folder) as part:
        with replacing(part / WEIGHTS_FILE) as file:
            save_file(tensors, file, metadata={"format": "pt"})
        write_text(part / CONFIG_FILE, f"{json.dumps(settings, indent=2)}\n")
        processor.tokenizer.save_pretrained(part)
        write_json(part / RECORD_FILE, record)
    return record


def _check_end_of_text(model: str | Path, tokenizer: Any, text: Any) -> None:
    """open_clip reads a text at its highest token, which has to be its end."""
    if tokenizer.eos_token_id != text.vocab_size - 1:
        raise ValueError(
            f"{model}: texts end with token {tokenizer.eos_token_id} of {text.vocab_size:,}; open_clip reads a text "
            "at its highest token, which has to be its end."
        )


def _record(model: str | Path, config: Any) -> dict[str, Any]:
    tokens = config.text_config.vocab_size
    note = (
        ""
        if tokens == _CLIP_TOKENS
        else f"the vocabulary of {tokens:,} tokens is not CLIP's: set text_cfg.hf_tokenizer_name in {CONFIG_FILE} to "
        "where this folder is published, else open_clip reads texts with CLIP's own tokenizer"
    )
    return {
        "source": str(model) if not Path(model).exists() else Path(model).resolve().name,
        "layout": "open_clip",
        "activation": {
            "image": config.vision_config.hidden_act,
            "text": config.text_config.hidden_act,
            "source": "config.json (hidden_act)",
        },
        "note": note,
        "versions": {"hfcomp": __version__, "transformers": transformers.__version__, "torch": torch.__version__},
    }
