"""Checkpoints of random weights in open_clip's layouts, with their reference networks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer

from tests import tolerances
from tests.convert import reference
from tests.tiny import captions

LENGTH, EMBED = 24, 16


@dataclass(frozen=True)
class Shape:
    """Sizes of an image tower; the text tower has 64 and heads of 32, or 64 and one where no configuration says so."""

    size: int = 64
    patch: int = 32
    width: int = 64
    head_width: int = 32
    inner: int = 256
    layers: int = 2
    text_heads: int = 2


SHAPES = {
    "ViT-B-32": Shape(),
    "ViT-B-16": Shape(size=48, patch=16, layers=3),
    "ViT-L-14": Shape(size=42, patch=14, width=96, inner=384, layers=4),
    "ViT-H-14": Shape(size=28, patch=14, width=80, head_width=20, inner=320),  # heads of another width
    "ViT-bigG-14": Shape(size=28, patch=14, width=104, head_width=26, inner=512),  # and of another MLP ratio
}


def vocabulary(processor: Path) -> int:
    return len(AutoTokenizer.from_pretrained(processor))


def model(shape: Shape, words: int, *, act="quick_gelu", text_act=None, custom_text=False, seed=0, eps=1e-5):
    heads = shape.width // shape.head_width
    vision = reference.Vision(shape.size, shape.patch, shape.width, shape.layers, heads, shape.inner, EMBED, act, eps)
    text = reference.Text(words, LENGTH, 64, 2, shape.text_heads, 256, EMBED, text_act or act, eps)
    return reference.randomize(reference.OpenClip(vision, text, custom_text), seed)


def config(shape: Shape, words: int, *, quick_gelu=True, **changes) -> dict:
    """`open_clip_config.json` as open_clip writes it."""
    vision = {"image_size": shape.size, "layers": shape.layers, "width": shape.width, "patch_size": shape.patch}
    text = {"context_length": LENGTH, "vocab_size": words, "width": 64, "heads": shape.text_heads, "layers": 2}
    cfg = {
        "embed_dim": EMBED,
        **({"quick_gelu": True} if quick_gelu else {}),
        "vision_cfg": {**vision, "head_width": shape.head_width, "mlp_ratio": shape.inner / shape.width},
        "text_cfg": text,
    }
    for name, value in changes.items():
        part, _, key = name.partition("__")
        cfg[part] = {**cfg[part], key: value} if key else value
    mean, std = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
    return {"model_cfg": cfg, "preprocess_cfg": {"mean": mean, "std": std}}


def state(network) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def write_folder(folder: Path, network, settings: dict) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state(network), folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps(settings))
    return folder


def tokens(processor: Path, *, pad: int | None = 0) -> torch.Tensor:
    """Captions as open_clip pads them, with token 0."""
    tokenizer = AutoTokenizer.from_pretrained(processor)
    rows = [tokenizer(text)["input_ids"][:LENGTH] for text in captions()[:40:7]]
    return torch.tensor([row + [pad] * (LENGTH - len(row)) for row in rows])


def pixels(size: int) -> torch.Tensor:
    return torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(3))


def tolerance(shape: Shape) -> float:
    """Of an entry of an embedding of either tower."""
    towers = [
        {"hidden": shape.width, "inner": shape.inner, "layers": shape.layers, "head": shape.head_width},
        {"hidden": 64, "inner": 256, "layers": 2, "head": 64 // shape.text_heads},
    ]
    places = max(LENGTH, (shape.size // shape.patch) ** 2 + 1)
    return max(
        tolerances.embedding(tokens=places, patch=3 * shape.patch**2, projection=EMBED, **tower) for tower in towers
    )
