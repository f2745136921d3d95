"""Determines the activation of a checkpoint: QuickGELU and GELU have no weights, so the file does not show it.

With the wrong activation, weights run without an error but score some points less (open_clip issue 771, sugar-crepe
issue 7: NegCLIP evaluated with GELU). So the activation is taken from a source that states it; without one, the user
must pass it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

QUICK_GELU, GELU, GELU_TANH = "quick_gelu", "gelu", "gelu_pytorch_tanh"
ACTIVATIONS = (QUICK_GELU, GELU, GELU_TANH)
QUICK_NAME = "-quickgelu"
# Tags in open_clip's `pretrained.py` at 89fb801 (June 2026), for image towers that are plain transformers.
_QUICK_TAGS = re.compile(r"openai|metaclip_(400m|fullcc)|dfn2b|dfn5b")
_GELU_TAGS = re.compile(r"metaclip_altogether|dfn2b_s39b|(laion2b|datacomp|commonpool)_\w+")
_BY_PATCH_TAG = re.compile(r"laion400m_e3[12]")  # QuickGELU for ViT-B/32, GELU for others
# timm models with the tanh form of GELU. The other SigLIP models of timm use the exact form.
_TANH_TOWERS = re.compile(r".*(patch32_siglip_256|large_patch16_siglip_512|so400m_patch16_siglip_\d+|giantopt_\w+)")
# The state dict of OpenAI's own archive contains these numbers among its weights.
OPENAI_NUMBERS = ("input_resolution", "context_length", "vocab_size")


class Activation(NamedTuple):
    """Activations of both towers, by their transformers names, and the source that states them."""

    image: str
    text: str
    source: str


def clip_activation(
    *,
    override: str | None,
    model: str | None,
    tag: str | None,
    config: Mapping[str, Any] | None,
    names: set[str],
    patch_size: int,
) -> Activation:
    """Determines the activation of a CLIP model.

    Args:
        override: Activation from the user, which overrides everything else.
        model: Name of the architecture in open_clip.
        tag: open_clip's tag for the weights that training started from.
        config: `model_cfg` from `open_clip_config.json`.
        names: Names of the checkpoint's tensors.
        patch_size: Width of the image tower's patches in pixels.
    """
    if override is not None:
        return Activation(override, override, "--activation")
    # Collect all sources, not only the first: if two disagree, one of them is wrong, but the weights don't show which.
    stated: dict[str, str] = {}
    if config is not None:
        quick = bool(config.get("quick_gelu", False))
        stated[f"open_clip_config.json (quick_gelu: {str(quick).lower()})"] = QUICK_GELU if quick else GELU
    # A name without this suffix states nothing, because open_clip then takes the activation from the tag.
    if model is not None and model.endswith(QUICK_NAME):
        stated[f"--model {model}"] = QUICK_GELU
    if tag is not None:
        stated[f"--pretrained {tag}"] = _tag_activation(tag, patch_size)
    # OpenAI trained all its CLIP models with QuickGELU.
    if set(OPENAI_NUMBERS) <= names:
        stated["OpenAI's own state dict (input_resolution and similar entries)"] = QUICK_GELU
    if len(set(stated.values())) > 1:
        claims = ", ".join(f"{value} by {source}" for source, value in stated.items())
        raise ValueError(
            f"sources disagree about the activation: {claims}. Choose --activation {QUICK_GELU} or --activation "
            f"{GELU}."
        )
    if not stated:
        raise ValueError(
            "the weights do not reveal the activation with which they were trained, and no other source states it. "
            "Pass the weights from which training started, such as --pretrained openai or --pretrained "
            f"laion2b_s34b_b79k, or pass --activation {QUICK_GELU} or --activation {GELU}. Models fine-tuned from "
            f"OpenAI's weights in open_clip (NegCLIP, CE-CLIP) use {QUICK_GELU}."
        )
    value = next(iter(stated.values()))
    return _with_forms(value, config or {}, ", ".join(stated))


def siglip_activation(*, override: str | None, config: Mapping[str, Any]) -> Activation:
    """Determines the activations of a SigLIP model, as open_clip and timm run it.

    Google's weights were trained with the tanh form, which transformers' own conversions use; open_clip runs the first
    generation with the exact form.
    """
    if override is not None:
        return Activation(override, override, "--activation")
    # timm derives the image tower's activation from the model name; the text tower's is an open_clip setting.
    tower = config["vision_cfg"]["timm_model_name"]
    image = GELU_TANH if _TANH_TOWERS.fullmatch(tower) else GELU
    return Activation(image, _with_form(GELU, config.get("text_cfg", {})), f"open_clip_config.json ({tower})")


def _tag_activation(tag: str, patch_size: int) -> str:
    if _BY_PATCH_TAG.fullmatch(tag):
        return QUICK_GELU if patch_size == 32 else GELU
    if _QUICK_TAGS.fullmatch(tag):
        return QUICK_GELU
    if _GELU_TAGS.fullmatch(tag):
        return GELU
    raise ValueError(
        f"--pretrained {tag}: hfcomp does not know the activation for this tag. Look it up in open_clip's "
        f"pretrained.py (quick_gelu=True or not) and pass --activation {QUICK_GELU} or --activation {GELU}."
    )


def _with_forms(value: str, config: Mapping[str, Any], source: str) -> Activation:
    image, text = (_with_form(value, config.get(part, {})) for part in ("vision_cfg", "text_cfg"))
    return Activation(image, text, source)


def _with_form(value: str, tower: Mapping[str, Any]) -> str:
    """Returns the form of GELU that a tower's `act_kwargs` specify."""
    settings = dict(tower.get("act_kwargs") or {})
    # Other settings would be lost silently, because transformers names an activation by a single word.
    if settings and (settings != {"approximate": "tanh"} or value != GELU):
        raise ValueError(
            f"open_clip_config.json: act_kwargs {settings} for {value} have no counterpart in transformers."
        )
    return GELU_TANH if settings else value
