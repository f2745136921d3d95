"""Embeddings of single tokens in the space of images and texts: an image's patches, the phrases of a caption.

Both come from the forward that gives the pooled embedding, through the model's own head: they add no parameter, and
the pooled embedding is what it is without them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hfcomp.modeling.backbones import normalized


def encode_image_tokens(backbone: nn.Module, pixel_values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings of images and of their patches.

    SigLIP: what the pooling head makes of a patch that it attends to alone, x + mlp(layernorm(x)) with x the output
    projection of the patch's values. CLIP: the patch through the layer norm and the projection of the class token.

    Of normalised pixels `[B, 3, H, W]` it returns the images, `[B, D]`, and their patches, `[B, P, D]` in reading
    order; both L2-normalised.

    Source:
        C2LIP (arXiv 2603.25722), V' of section 3.2, with the output projection, the layer norm, the residual and the
        L2 norm of its released code; the paper writes f_MLP. CLIP: our choice, the paper has SigLIP only.
    """
    output = backbone.get_image_features(pixel_values=pixel_values.to(backbone.dtype))
    tower, states = backbone.vision_model, output.last_hidden_state
    if hasattr(tower, "head"):
        # one key has all the attention, and an adapter of the head counts as it does in the pooled embedding
        tokens = tower.head(states.flatten(0, 1).unsqueeze(1)).unflatten(0, states.shape[:2])
    else:
        tokens = backbone.visual_projection(tower.post_layernorm(states[:, 1:]))
    return normalized(output.pooler_output), normalized(tokens)


def encode_phrases(
    backbone: nn.Module, input_ids: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings of captions and of phrases in them.

    A phrase is the mean of the states of its tokens, behind the last layer norm, through the head (SigLIP) or the
    projection (CLIP) of the text tower. CLIP is causal: its tokens know what stands before them only.

    Args:
        input_ids: `[B, L]`, padded on the right.
        mask: `[b, M, L]` bool, the tokens of the phrases of the first `b` texts.

    Returns:
        The captions, `[B, D]`, and their phrases, `[b, M, D]`; both L2-normalised. A phrase without tokens has no
        meaning.

    Source:
        C2LIP (arXiv 2603.25722), section 3.2: "pooling the representations of the text tokens". The mean, the layer
        norm and the head are our choice: the paper does not specify them, and its released code encodes each phrase
            alone.
    """
    output = backbone.get_text_features(input_ids=input_ids)
    states = output.last_hidden_state[: len(mask)]
    # A masked mean of all phrases of a caption as one matrix product; an absent phrase divides by 1 in place of 0.
    means = mask.to(states.dtype) @ states / mask.sum(-1, keepdim=True).clamp(min=1)
    return normalized(output.pooler_output), normalized(_text_head(backbone)(means))


def _text_head(backbone: nn.Module) -> Any:
    tower = backbone.text_model
    return tower.head if hasattr(tower, "head") else backbone.text_projection
