"""Exports models to other libraries: a CLIP to open_clip, and an image tower into a LLaVA."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForImageTextToText, AutoProcessor

from hfcomp.convert.checkpoint_file import CONFIG_FILE, WEIGHTS_FILE
from hfcomp.convert.clip_layout import clip_table, model_config
from hfcomp.convert.convert import RECORD_FILE, check_folder, library_versions
from hfcomp.convert.processors import preprocess_config
from hfcomp.convert.weight_table import from_transformers
from hfcomp.families import family_of
from hfcomp.modeling import tower_parts
from hfcomp.modeling.backbones import load_backbone, load_processor
from hfcomp.modeling.embedding import vision_config
from hfcomp.modeling.weight_checks import check_same, name_damaged_weights, raise_on_mismatch, silence_library
from hfcomp.writing import replacing, replacing_folder, write_json, write_text

_CLIP_TOKENS = 49_408


def load_plain(model: str | Path, dtype: Any = "auto") -> Any:
    """Loads a dual encoder by Hub id or folder. Raises ValueError for an adapter, whose weights are in two places."""
    backbone = load_backbone(model, dtype=dtype)
    if hasattr(backbone, "peft_config"):
        raise ValueError(f"{model}: found an adapter. Merge it first (hfcomp.merge_adapter).")
    return backbone


def export_open_clip(model: str | Path, folder: Path) -> dict[str, Any]:
    """Writes a CLIP in open_clip's layout: `open_clip_config.json` and `open_clip_model.safetensors`.

    open_clip loads the folder as `local-dir:FOLDER`, and as `hf-hub:NAME` after it is pushed. Weights keep their
    values and dtype.

    Args:
        model: Hub id or folder of a `CLIPModel`.
        folder: Output folder. Created if missing; replaced if an earlier conversion wrote it.

    Returns:
        The content of `conversion.json`; its `note` says what open_clip still needs, if anything.

    Raises:
        ValueError: If the model is of another class, is an adapter, or has no counterpart in open_clip's settings.
    """
    check_folder(folder)
    backbone = load_plain(model)
    if "to" not in family_of(backbone.config).conversions:
        kind = type(backbone).__name__
        raise ValueError(f"{model}: found a {kind}, but only a CLIPModel can be exported to open_clip.")
    processor, config = load_processor(model, argument="model"), backbone.config
    _check_end_of_text(model, processor.tokenizer, config.text_config)
    # Everything that may raise comes before the folder is created.
    layers = [tower.num_hidden_layers for tower in (config.vision_config, config.text_config)]
    tensors = from_transformers(clip_table("", *layers), backbone.state_dict())
    settings = {
        "model_cfg": model_config(config),
        "preprocess_cfg": preprocess_config(processor, config.vision_config.image_size),
    }
    record = _describe_export(model, config)
    with replacing_folder(folder) as part:
        with replacing(part / WEIGHTS_FILE) as file:
            save_file(tensors, file, metadata={"format": "pt"})
        write_text(part / CONFIG_FILE, f"{json.dumps(settings, indent=2)}\n")
        processor.tokenizer.save_pretrained(part)
        write_json(part / RECORD_FILE, record)
    return record


def _check_end_of_text(model: str | Path, tokenizer: Any, text: Any) -> None:
    if tokenizer.eos_token_id != text.vocab_size - 1:
        raise ValueError(
            f"{model}: texts end with token {tokenizer.eos_token_id} of {text.vocab_size:,}, but open_clip pools a "
            "text at its highest token, which must be the end-of-text token."
        )


def _describe_export(model: str | Path, config: Any) -> dict[str, Any]:
    tokens = config.text_config.vocab_size
    # Only the publisher knows the Hub id from which open_clip should load the tokenizer.
    note = (
        ""
        if tokens == _CLIP_TOKENS
        else f"the vocabulary of {tokens:,} tokens is not CLIP's: set text_cfg.hf_tokenizer_name in {CONFIG_FILE} to "
        "the Hub id of this folder, otherwise open_clip uses CLIP's own tokenizer"
    )
    return {
        "source": source_name(model),
        "layout": "open_clip",
        "activation": {
            "image": config.vision_config.hidden_act,
            "text": config.text_config.hidden_act,
            "source": "config.json (hidden_act)",
        },
        "note": note,
        "versions": library_versions(),
    }


_ARCHITECTURE = (
    *("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_channels"),
    *("image_size", "patch_size", "hidden_act", "layer_norm_eps"),
)
_PIXELS = ("image_mean", "image_std", "size", "crop_size", "resample", "do_center_crop", "rescale_factor")
_INNER = "vision_model."  # prefix of a tower's weight names in some versions of transformers
_HEAD = "head."  # SigLIP's pooling, which a LLaVA may omit because it reads the patches
NOTE = (
    "the connector and the language model were trained with the replaced tower. Retrain them, as in LLaVA's two "
    "stages, before you judge this tower by the result"
)


def export_llava(model: str | Path, llava: str | Path, folder: Path) -> dict[str, Any]:
    """Writes a LLaVA whose image tower has the weights of a CLIP or SigLIP with the same configuration.

    Everything else, including the processor, stays the LLaVA's. The tower's weights take the dtype of the LLaVA.

    Args:
        model: Hub id or folder of the dual encoder, such as a model fine-tuned with hfcomp.
        llava: Hub id or folder of an image-text-to-text model with a `vision_tower`, such as a LLaVA.
        folder: Output folder. Created if missing; replaced if an earlier conversion wrote it.

    Returns:
        The content of `conversion.json`; its `note` says what is left to do, and `pixels` lists differences between
        the processors.

    Raises:
        ValueError: If the model is an adapter, the LLaVA has no `vision_tower`, the towers differ in configuration or
            shapes (the message names the differences), or the folder contains other files.
    """
    check_folder(folder)
    backbone = load_plain(model)
    reader = load_llava(llava)
    tower = getattr(reader.model, "vision_tower", None) if hasattr(reader, "model") else None
    if tower is None:
        raise ValueError(
            f"{llava}: found a {type(reader).__name__}, expected a model with a vision_tower, such as LLaVA."
        )
    _check_configurations(model, vision_config(backbone.config), llava, tower.config)
    record = _describe_replacement(model, llava, backbone, reader) | {
        "replaced": replace_tower(model, getattr(backbone, tower_parts(backbone, "image")[0]), tower)
    }
    processor = AutoProcessor.from_pretrained(llava, trust_remote_code=False)
    record["pixels"] = _differences(load_processor(model, argument="model"), processor)
    with replacing_folder(folder) as part:
        reader.save_pretrained(part)
        processor.save_pretrained(part)
        write_json(part / RECORD_FILE, record)
    return record


def load_llava(llava: str | Path) -> Any:
    """Loads a LLaVA, or another image-text-to-text model, in the precision of its file."""
    try:  # `raise_on_mismatch` below names wrong shapes and the fix, so transformers must not raise first
        with name_damaged_weights(llava), silence_library():
            reader, info = AutoModelForImageTextToText.from_pretrained(
                llava, dtype="auto", trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=True
            )
    except ValueError as error:  # transformers lists the supported configurations
        raise ValueError(f"{llava}: expected an image-text-to-text model such as LLaVA: {error}") from error
    raise_on_mismatch(llava, missing=info["missing_keys"], shapes=info["mismatched_keys"])
    return reader


def _check_configurations(model: str | Path, actual: Any, llava: str | Path, expected: Any) -> None:
    differences = [
        f"{name} {getattr(actual, name, None)!r} instead of {getattr(expected, name, None)!r}"
        for name in _ARCHITECTURE
        if getattr(actual, name, None) != getattr(expected, name, None)
    ]
    if differences:
        raise ValueError(
            f"{model}: its image tower does not match that of {llava}: {', '.join(differences)}. Choose the model "
            "from which this LLaVA's tower comes, or a model fine-tuned from it."
        )


def replace_tower(model: str | Path, source: torch.nn.Module, tower: torch.nn.Module) -> dict[str, int]:
    """Copies a tower's weights into another; returns the numbers of tensors, values and changed tensors.

    If no tensor changed, the LLaVA already had exactly this tower, so the wrong weights were passed.
    """
    weights = {name.removeprefix(_INNER): value for name, value in source.state_dict().items()}
    target = {name.removeprefix(_INNER): value for name, value in tower.state_dict().items()}
    weights = {name: value for name, value in weights.items() if name in target or not name.startswith(_HEAD)}
    check_same(model, weights, target)
    changed = 0
    with torch.no_grad():
        for name, value in target.items():
            # Compare in the LLaVA's dtype, because rounding to it is not a change.
            new = weights[name].to(value.dtype)
            changed += int(not torch.equal(new, value))
            value.copy_(new)
    return {"tensors": len(target), "values": sum(value.numel() for value in target.values()), "changed": changed}


def _differences(processor: Any, other: Any) -> dict[str, list[Any]]:
    """Returns the image settings in which the processors differ: the dual encoder's value, then the LLaVA's."""
    ours, theirs = (part.image_processor.to_dict() for part in (processor, other))
    return {name: [ours.get(name), theirs.get(name)] for name in _PIXELS if ours.get(name) != theirs.get(name)}


def _describe_replacement(model: str | Path, llava: str | Path, backbone: Any, reader: Any) -> Mapping[str, Any]:
    return {
        "source": source_name(model),
        "llava": source_name(llava),
        "layout": "image tower of a LLaVA",
        "model": type(reader).__name__,
        "vision_tower": type(backbone).__name__,
        "dtype": str(reader.dtype).removeprefix("torch."),
        "note": NOTE,
        "versions": library_versions(),
    }


def source_name(source: str | Path) -> str:
    """Returns a Hub id unchanged, or only the last component of a folder's path."""
    return Path(source).resolve().name if Path(source).exists() else str(source)
