"""Writes models for other libraries: a CLIP for open_clip, and an image tower inside a LLaVA."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForImageTextToText, AutoProcessor, CLIPModel

from hfcomp import __version__
from hfcomp.convert.checkpoint_file import CONFIG_FILE, WEIGHTS_FILE
from hfcomp.convert.clip_layout import clip_table, model_config
from hfcomp.convert.convert import RECORD_FILE, check_folder
from hfcomp.convert.processors import preprocess_config
from hfcomp.convert.weight_table import from_transformers
from hfcomp.modeling.backbones import load_backbone, load_processor
from hfcomp.modeling.weight_checks import check_same, damage_named, no_report, refuse
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
    # Everything that may raise comes before the folder is made.
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
            f"{model}: texts end with token {tokenizer.eos_token_id} of {text.vocab_size:,}; open_clip reads a text "
            "at its highest token, which has to be its end."
        )


def _describe_export(model: str | Path, config: Any) -> dict[str, Any]:
    tokens = config.text_config.vocab_size
    # Only the publisher knows the Hub id from which open_clip should load the tokenizer.
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


_ARCHITECTURE = (
    *("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_channels"),
    *("image_size", "patch_size", "hidden_act", "layer_norm_eps"),
)
_PIXELS = ("image_mean", "image_std", "size", "crop_size", "resample", "do_center_crop", "rescale_factor")
_INNER = "vision_model."  # before the names of a tower's weights in some versions of transformers
_HEAD = "head."  # SigLIP's pooling, which a LLaVA may have left out: it reads the patches
NOTE = (
    "the connector and the language model were trained with the tower that was replaced: train them again, as LLaVA's "
    "two stages do, before the result is taken for what this tower can do"
)


def export_llava(model: str | Path, llava: str | Path, folder: Path) -> dict[str, Any]:
    """Writes a LLaVA whose image tower has the weights of a CLIP or SigLIP of the same configuration.

    Everything else is the LLaVA's, its processor too. Weights of the tower take the type of the LLaVA's.

    Args:
        model: Hub id or folder of the dual encoder, such as one that was fine-tuned here.
        llava: Hub id or folder of an image-text-to-text model with a `vision_tower`, such as a LLaVA.
        folder: is made, or replaced where an earlier conversion wrote it.

    Returns:
        The content of `conversion.json`; its `note` says what is left to do, and `pixels` where the processors
        differ.

    Raises:
        ValueError: for an adapter, a model without a `vision_tower`, towers of other configurations or shapes, naming
            what differs, or a folder of other files.
    """
    check_folder(folder)
    backbone = load_backbone(model, dtype="auto")
    if hasattr(backbone, "peft_config"):
        raise ValueError(f"{model}: found an adapter. Merge it first (hfcomp.merge_adapter).")
    reader = _load(llava)
    tower = getattr(reader.model, "vision_tower", None) if hasattr(reader, "model") else None
    if tower is None:
        raise ValueError(f"{llava}: found a {type(reader).__name__}, expected a model with a vision_tower, as LLaVA.")
    _check_configurations(model, backbone.config.vision_config, llava, tower.config)
    record = _describe_replacement(model, llava, backbone, reader) | {
        "replaced": _replace(model, backbone.vision_model, tower)
    }
    processor = AutoProcessor.from_pretrained(llava, trust_remote_code=False)
    record["pixels"] = _differences(load_processor(model, argument="model"), processor)
    with replacing_folder(folder) as part:
        reader.save_pretrained(part)
        processor.save_pretrained(part)
        write_json(part / RECORD_FILE, record)
    return record


def _load(llava: str | Path) -> Any:
    try:
        # A wrong shape is reported by `refuse` below, with names and the fix, so transformers must not raise first.
        with damage_named(llava), no_report():
            found, info = AutoModelForImageTextToText.from_pretrained(
                llava, dtype="auto", trust_remote_code=False, output_loading_info=True, ignore_mismatched_sizes=True
            )
    except ValueError as error:  # transformers names the configurations that it has
        raise ValueError(f"{llava}: expected an image-text-to-text model such as LLaVA: {error}") from error
    refuse(llava, missing=info["missing_keys"], shapes=info["mismatched_keys"])
    return found


def _check_configurations(model: str | Path, own: Any, llava: str | Path, expected: Any) -> None:
    found = [
        f"{name} {getattr(own, name, None)!r} in place of {getattr(expected, name, None)!r}"
        for name in _ARCHITECTURE
        if getattr(own, name, None) != getattr(expected, name, None)
    ]
    if found:
        raise ValueError(
            f"{model}: its image tower is not the one of {llava}: {', '.join(found)}. Choose the model that this "
            "LLaVA's tower came from, or was fine-tuned from."
        )


def _replace(model: str | Path, source: torch.nn.Module, tower: torch.nn.Module) -> dict[str, int]:
    """Copies a tower's weights into another. Returns how many tensors and values, and how many tensors changed.

    No changed tensor means that the LLaVA had this very tower, so the fine-tuned weights were not the ones passed.
    """
    given = {name.removeprefix(_INNER): value for name, value in source.state_dict().items()}
    target = {name.removeprefix(_INNER): value for name, value in tower.state_dict().items()}
    given = {name: value for name, value in given.items() if name in target or not name.startswith(_HEAD)}
    check_same(model, given, target)
    changed = 0
    with torch.no_grad():
        for name, value in target.items():
            # Compared in the LLaVA's type: rounding to it is not a change.
            new = given[name].to(value.dtype)
            changed += int(not torch.equal(new, value))
            value.copy_(new)
    return {"tensors": len(target), "values": sum(value.numel() for value in target.values()), "changed": changed}


def _differences(processor: Any, other: Any) -> dict[str, list[Any]]:
    """How images are prepared where the processors differ: the dual encoder's value, then the LLaVA's."""
    own, kept = (one.image_processor.to_dict() for one in (processor, other))
    return {name: [own.get(name), kept.get(name)] for name in _PIXELS if own.get(name) != kept.get(name)}


def _describe_replacement(model: str | Path, llava: str | Path, backbone: Any, reader: Any) -> Mapping[str, Any]:
    return {
        "source": _name(model),
        "llava": _name(llava),
        "layout": "image tower of a LLaVA",
        "model": type(reader).__name__,
        "vision_tower": type(backbone).__name__,
        "dtype": str(reader.dtype).removeprefix("torch."),
        "note": NOTE,
        "versions": {"hfcomp": __version__, "transformers": transformers.__version__, "torch": torch.__version__},
    }


def _name(place: str | Path) -> str:
    """A Hub id, or the name of a folder without what is above it."""
    return Path(place).resolve().name if Path(place).exists() else str(place)
