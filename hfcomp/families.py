"""Traits of the families of dual encoders: where one of them reads texts or images differently from the default."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# RoBERTa numbers positions from the padding token's id + 1, so its table has that many rows more than a text may have.
_POSITIONS_AFTER_PADDING = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "altclip_text_model")
_UNLIMITED = 10**6  # transformers sets a tokenizer's model_max_length to 1e30 if it is unknown


@dataclass(frozen=True)
class Family:
    """Traits of a family of dual encoders.

    Attributes:
        padding: `"masked"`: an attention mask hides the padding. `"causal"`: the text tower is causal and pools at the
            end-of-text token, so tokens to the right of it change nothing. `"read"`: the tower attends to its padding,
            and every text is padded to full length, as in training.
        causal_mask: Whether a causal tower must be given its causal mask: with PyTorch's attention, transformers 5.23
            runs AIMv2's text tower without one unless a text of the batch is padded.
        highest_end: Whether a causal tower pools at the highest token id of a text, whatever its configuration says.
        clean: Whether texts are cleaned as by OpenAI's tokenizer (`hfcomp.data.tokenizing.clean`).
        lower: Whether texts are lower-cased, if the tokenizer does not do it itself.
        length: Tokens per text that the authors allow, if the text tower has more positions.
        first_token: Whether features are one vector per token, of which the first is the embedding.
        width: Field of the configuration with the number of dimensions of an embedding.
        temperature: Whether the similarities are divided by a parameter `temperature`, instead of multiplied by
            `exp(logit_scale)`.
        max_scale: Largest multiplier of the similarities that the authors allow in training.
        image_inputs: Names of the image tower's inputs.
        image_parts: Modules of the image tower and its projection.
        conversions: Directions in which `hfcomp convert` carries weights, `from` and `to` open_clip.
        tokens: Whether single tokens and patches can be embedded too (`encode_image_tokens`, `encode_phrases`).
    """

    padding: str = "masked"
    causal_mask: bool = False
    highest_end: bool = False
    clean: bool = False
    lower: bool = False
    length: int | None = None
    first_token: bool = False
    width: str = "projection_dim"
    temperature: bool = False
    max_scale: float = 100.0
    image_inputs: tuple[str, ...] = ("pixel_values",)
    image_parts: tuple[str, ...] = ("vision_model", "visual_projection")
    conversions: tuple[str, ...] = ()
    tokens: bool = False


TEXT_PARTS = ("text_model", "text_projection")
"""Modules of the text tower and its projection, in all families."""

_CLIP = Family(padding="causal", clean=True)
_OWL = Family(padding="causal", clean=True, highest_end=True)
_PATCHES = ("pixel_values", "pixel_attention_mask", "spatial_shapes")

FAMILIES = {
    "aimv2": Family(padding="causal", causal_mask=True),
    "align": Family(length=64, temperature=True, max_scale=math.inf),
    "altclip": Family(length=77),
    "blip": Family(width="image_text_hidden_size"),
    "chinese_clip": Family(length=52),
    "clip": Family(padding="causal", clean=True, conversions=("from", "to"), tokens=True),
    "clipseg": _CLIP,
    "flava": Family(length=77, first_token=True, image_parts=("image_model", "image_projection")),
    "groupvit": _CLIP,
    "metaclip_2": Family(padding="causal", tokens=True),
    "owlv2": _OWL,
    "owlvit": _OWL,
    "siglip": Family(padding="read", lower=True, max_scale=math.inf, conversions=("from",), tokens=True),
    "siglip2": Family(padding="read", lower=True, max_scale=math.inf, image_inputs=_PATCHES),
    "tipsv2": Family(length=64, temperature=True, max_scale=math.inf),
}
"""Families by `model_type`; all others have the default traits."""


def family_of(config: Any) -> Family:
    """Returns the traits of a model, by its configuration."""
    return FAMILIES.get(getattr(config, "model_type", ""), Family())


def text_length(config: Any, tokenizer: Any) -> int:
    """Returns the number of tokens at which a text is cut, special tokens included."""
    text, family = config.text_config, family_of(config)
    positions = text.max_position_embeddings
    if family.padding != "masked":
        return positions
    if text.model_type in _POSITIONS_AFTER_PADDING:
        positions -= text.pad_token_id + 1
    limit = tokenizer.model_max_length
    return min(positions, family.length or positions, limit if limit < _UNLIMITED else positions)


def embedding_width(config: Any) -> int:
    """Returns the number of dimensions of an embedding."""
    return getattr(config, family_of(config).width, None) or config.vision_config.hidden_size
