"""Every family of dual encoders that transformers has, tiny and with random weights, in the Hub's layout."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image as Image
from transformers import CONFIG_MAPPING, ProcessorMixin
from transformers.models.auto.configuration_auto import model_type_to_module_name
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from hfcomp.families import FAMILIES, Family
from hfcomp.modeling.adapters import TARGETS, lora_config
from hfcomp.modeling.image_processors import CLIPImageProcessorPil
from tests import tiny

FEATURES = ("get_image_features", "get_text_features")
# Settings that make a model small. Each is set wherever a configuration has it.
SMALL = {
    "hidden_size": 32,
    "encoder_hidden_size": 32,
    "hidden_dim": 24,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": tiny.IMAGE_SIZE,
    "patch_size": 8,
    "num_patches": 16,
    "projection_dim": 24,
    "image_text_hidden_size": 24,
    "project_dim": 32,
    "projection_size": 32,
    "max_position_embeddings": tiny.TEXT_LENGTH,
    "initializer_range": 0.02,  # BLIP's 1e-10 leaves nothing of an image
    # GroupViT and ALIGN's EfficientNet
    "depths": [1, 1, 1],
    "num_group_tokens": [8, 4, 0],
    "num_output_groups": [8, 4, 4],
    "width_coefficient": 0.1,
    "depth_coefficient": 0.1,
    "out_channels": [16, 24, 40, 80, 112, 192, 240],
}
TOKENIZERS = {"altclip": "XLMRobertaTokenizer", "vision-text-dual-encoder": "BertTokenizer"}
PARTS = {"vision-text-dual-encoder": {"vision_config": {"model_type": "vit"}, "text_config": {"model_type": "bert"}}}
"""What a configuration has to be given; transformers before 5.4 has no default for it."""
WITHOUT_EMBEDDINGS = {
    "blip-2": "its text features are the states of a language model, which are not in the space of its images"
}
"""Families with both methods whose features cannot be compared, and why."""


def model_types() -> list[str]:
    """Returns the `model_type` of every family whose model has image and text features."""
    return sorted(name for name in MODEL_MAPPING_NAMES if name in CONFIG_MAPPING and _has_features(name))


def dual_encoders() -> list[str]:
    """Returns the families whose image and text features can be compared."""
    return [name for name in model_types() if name not in WITHOUT_EMBEDDINGS]


def _has_features(model_type: str) -> bool:
    # The source is searched first, because importing every model of transformers takes minutes.
    folder = Path(transformers.__file__).parent / "models" / model_type_to_module_name(model_type)
    if not any(all(f"def {name}(" in file.read_text() for name in FEATURES) for file in folder.glob("modeling_*.py")):
        return False
    model = MODEL_MAPPING[CONFIG_MAPPING[model_type]]
    return all(hasattr(model, name) for name in FEATURES)


def write_family(folder: Path, model_type: str, *, seed: int = 0) -> Path:
    """Writes a tiny model of a family and its processor, as `save_pretrained` writes them."""
    if model_type == "siglip":
        return tiny.siglip(folder, seed=seed)
    tokenizer = make_tokenizer(model_type)
    config = small(CONFIG_MAPPING[model_type], tokenizer)
    torch.manual_seed(seed)
    model = MODEL_MAPPING[type(config)](config)
    if model_type == "align":
        _set_batch_norms(model)
    model.save_pretrained(folder)
    _processor(model_type, tokenizer).save_pretrained(folder)
    return folder


def _set_batch_norms(model: Any) -> None:
    """Gives batch norms the statistics of noise; with those of a new model, all images get almost the same vector."""
    with torch.no_grad():
        for _ in range(50):
            model.train().vision_model(torch.randn(8, 3, tiny.IMAGE_SIZE, tiny.IMAGE_SIZE))


def small(kind: type, tokenizer: Any, sizes: dict[str, Any] = SMALL) -> Any:
    """Returns a small configuration of a class, with small parts."""
    default = kind(**copy.deepcopy(PARTS.get(kind.model_type, {})))  # some classes change what they are given
    settings = {name: value for name, value in sizes.items() if getattr(default, name, None) is not None}
    if getattr(default, "vocab_size", None) is not None:
        special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        settings |= {"vocab_size": len(tokenizer), **special}
    for name in getattr(default, "sub_configs", None) or {}:
        part = getattr(default, name, None)
        if part is not None:
            settings[name] = small(type(part), tokenizer, sizes).to_dict()
    return kind(**settings)


def make_tokenizer(model_type: str) -> Any:
    name = TOKENIZERS.get(model_type) or TOKENIZER_MAPPING_NAMES[model_type]
    kind = getattr(transformers, name)
    tokenizer = kind().train_new_from_iterator(tiny.captions(), 700)
    if name == "CLIPTokenizer":
        tokenizer = _with_end_last(tokenizer)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(1)
    # RoBERTa's positions begin after the padding token's id.
    tokenizer.model_max_length = tiny.TEXT_LENGTH - (2 if model_type == "altclip" else 0)
    # As in the checkpoints of SigLIP 2; the class itself has "left".
    tokenizer.padding_side = tokenizer.init_kwargs["padding_side"] = "right"
    return tokenizer


def _with_end_last(tokenizer: Any) -> Any:
    """Returns a CLIP tokenizer whose end-of-text token has the highest id, as on the Hub."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    special = ("<|startoftext|>", "<|endoftext|>")
    words = sorted(set(model["vocab"]) - set(special), key=model["vocab"].get)
    vocabulary = {word: number for number, word in enumerate([*words, *special])}
    return type(tokenizer)(vocab=vocabulary, merges=[tuple(merge) for merge in model["merges"]])


def make_image_processor(model_type: str, **more: Any) -> Any:
    names = IMAGE_PROCESSOR_MAPPING_NAMES.get(model_type) or {}
    name = names[0] if isinstance(names, tuple) else names.get("pil")  # pairs before transformers 5.4
    kind = getattr(transformers, name) if name else CLIPImageProcessorPil
    side = {"height": tiny.IMAGE_SIZE, "width": tiny.IMAGE_SIZE}
    default = kind()
    settings: dict[str, Any] = {}
    if getattr(default, "size", None):
        # Chinese CLIP's checkpoints state both sides, and transformers before 5.4 needs them.
        shortest = model_type != "chinese_clip" and default.size.get("shortest_edge")
        settings["size"] = {"shortest_edge": tiny.IMAGE_SIZE} if shortest else side
    if getattr(default, "crop_size", None):
        settings["crop_size"] = side
    if hasattr(default, "max_num_patches"):
        settings |= {"max_num_patches": 16, "patch_size": 8}
    return kind(**{**settings, **more})


def _processor(model_type: str, tokenizer: Any) -> ProcessorMixin:
    kind = getattr(transformers, PROCESSOR_MAPPING_NAMES[model_type])
    return kind(image_processor=make_image_processor(model_type), tokenizer=tokenizer)


def table() -> str:
    """Returns the families as docs/models.md lists them; `python -m tests.families` prints it."""
    head = "| `model_type` | class | evaluate | train | C2LIP and `attention` | adapters | open_clip | texts |"
    rows = [head, "|" + "---|" * head.count(" | ") + "---|"]
    for name in model_types():
        model = MODEL_MAPPING[CONFIG_MAPPING[name]]
        if name in WITHOUT_EMBEDDINGS:
            rows.append(f"| {name} | `{model.__name__}` | no: {WITHOUT_EMBEDDINGS[name]} | no | no | no | no | |")
            continue
        family = FAMILIES.get(name, Family())
        length = f"{family.length} tokens" if family.length else "the tower's positions"
        tokens, converts = "yes" if family.tokens else "no", " and ".join(family.conversions) or "no"
        cells = [name, f"`{model.__name__}`", "yes", "yes", tokens, ", ".join(adapter_targets(name)), converts, length]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def adapter_targets(model_type: str) -> list[str]:
    """Returns the named targets of adapters that match modules of a family, as its default configuration builds it."""
    kind, targets = CONFIG_MAPPING[model_type], []
    with torch.device("meta"):
        model = MODEL_MAPPING[kind](kind(**copy.deepcopy(PARTS.get(model_type, {}))))
    for target in TARGETS:
        with contextlib.suppress(ValueError):
            lora_config(model, targets=[target])
            targets.append(target)
    return targets


if __name__ == "__main__":
    print(table(), end="")
