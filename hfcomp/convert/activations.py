"""Which activation a checkpoint was trained with: QuickGELU and GELU have no weights, so that a file does not show it.

The weights of one run under the other without an error and score some points less (open_clip issue 771, sugar-crepe
issue 7: NegCLIP evaluated with GELU). So the activation comes from something that states it, and is asked for where
nothing does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

QUICK_GELU, GELU, GELU_TANH = "quick_gelu", "gelu", "gelu_pytorch_tanh"
ACTIVATIONS = (QUICK_GELU, GELU, GELU_TANH)
QUICK_NAME = "-quickgelu"
# Tags of open_clip's `pretrained.py` at 89fb801 (June 2026), for image towers that are plain transformers.
_QUICK_TAGS = re.compile(r"openai|metaclip_(400m|fullcc)|dfn2b|dfn5b")
_GELU_TAGS = re.compile(r"metaclip_altogether|dfn2b_s39b|(laion2b|datacomp|commonpool)_\w+")
_BY_PATCH_TAG = re.compile(r"laion400m_e3[12]")  # QuickGELU for ViT-B/32, GELU for the others
# timm models with the tanh form of GELU. The other timm models of SigLIP have the exact one.
_TANH_TOWERS = re.compile(r".*(patch32_siglip_256|large_patch16_siglip_512|so400m_patch16_siglip_\d+|giantopt_\w+)")
# A state of OpenAI's own archive holds these numbers among its weights.
OPENAI_NUMBERS = ("input_resolution", "context_length", "vocab_size")


class Activation(NamedTuple):
    """The activations of both towers, as transformers calls them, and what states them."""

    image: str
    text: str
    source: str


def clip_activation(
    *,
    given: str | None,
    model: str | None,
    tag: str | None,
    config: Mapping[str, Any] | None,
    names: set[str],
    patch_size: int,
) -> Activation:
    """The activation of a CLIP.

    Args:
        given: Activation from the user, which overrides everything else.
        model: open_clip's name of the architecture.
        tag: open_clip's tag of the weights that training started from.
        config: `model_cfg` of `open_clip_config.json`.
        names: Names of the checkpoint's tensors.
        patch_size: Width of the image tower's patches in pixels.
    """
    if given is not None:
        return Activation(given, given, "--activation")
    # All sources are collected, not only the first one: if two disagree, one of them is wrong, and no weight shows
    # which.
    stated: dict[str, str] = {}
    if config is not None:
        quick = bool(config.get("quick_gelu", False))
        stated[f"open_clip_config.json (quick_gelu: {str(quick).lower()})"] = QUICK_GELU if quick else GELU
    # A name without the ending says nothing: open_clip then takes the activation from the tag.
    if model is not None and model.endswith(QUICK_NAME):
        stated[f"--model {model}"] = QUICK_GELU
    if tag is not None:
        stated[f"--pretrained {tag}"] = _of_tag(tag, patch_size)
    # OpenAI trained all its CLIPs with QuickGELU.
    if set(OPENAI_NUMBERS) <= names:
        stated["OpenAI's own state (input_resolution and its like)"] = QUICK_GELU
    if len(set(stated.values())) > 1:
        shown = ", ".join(f"{value} by {source}" for source, value in stated.items())
        raise ValueError(f"the activation is {shown}. Choose: --activation {QUICK_GELU} or --activation {GELU}.")
    if not stated:
        raise ValueError(
            "the weights do not show which activation they were trained with, and nothing else says it. Pass what "
            f"training started from, such as --pretrained openai or --pretrained laion2b_s34b_b79k, or --activation "
            f"{QUICK_GELU} or {GELU}. Models fine-tuned from OpenAI's weights in open_clip (NegCLIP, CE-CLIP) have "
            f"{QUICK_GELU}."
        )
    value = next(iter(stated.values()))
    return _with_forms(value, config or {}, ", ".join(stated))


def siglip_activation(*, given: str | None, config: Mapping[str, Any]) -> Activation:
    """The activations of a SigLIP, as open_clip and timm run it.

    Google's weights were trained with the tanh form, which transformers' own conversions have; open_clip runs the
    first generation with the exact one.
    """
    if given is not None:
        return Activation(given, given, "--activation")
    # timm fixes the image tower's activation by its model's name; the text tower's is a setting of open_clip.
    tower = config["vision_cfg"]["timm_model_name"]
    image = GELU_TANH if _TANH_TOWERS.fullmatch(tower) else GELU
    return Activation(image, _with_form(GELU, config.get("text_cfg", {})), f"open_clip_config.json ({tower})")


def _of_tag(tag: str, patch_size: int) -> str:
    if _BY_PATCH_TAG.fullmatch(tag):
        return QUICK_GELU if patch_size == 32 else GELU
    if _QUICK_TAGS.fullmatch(tag):
        return QUICK_GELU
    if _GELU_TAGS.fullmatch(tag):
        return GELU
    raise ValueError(
        f"--pretrained {tag}: not a tag that hfcomp knows the activation of. Look it up in open_clip's pretrained.py "
        f"(quick_gelu=True or not) and pass --activation {QUICK_GELU} or {GELU}."
    )


def _with_forms(value: str, config: Mapping[str, Any], source: str) -> Activation:
    image, text = (_with_form(value, config.get(part, {})) for part in ("vision_cfg", "text_cfg"))
    return Activation(image, text, source)


def _with_form(value: str, tower: Mapping[str, Any]) -> str:
    """GELU in the form that `act_kwargs` of a tower ask for."""
    settings = dict(tower.get("act_kwargs") or {})
    # Other settings would be dropped without a trace, because transformers names an activation by one word.
    if settings and (settings != {"approximate": "tanh"} or value != GELU):
        raise ValueError(
            f"open_clip_config.json: act_kwargs {settings} of {value} have no counterpart in transformers."
        )
    return GELU_TANH if settings else value
