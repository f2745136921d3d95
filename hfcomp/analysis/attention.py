"""Attention of image tokens for a phrase, as in C2LIP's cross-attended loss, and differences between two models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

if TYPE_CHECKING:
    from hfcomp.data.pixels import PixelTransform
    from hfcomp.evaluation.encoding.embed import Embedder

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, as fractions of an image's width and height."""

SMALLEST_SIDE = 16  # pixels
# Precision of an edge that is located with two 8-bit ramps. An edge closer than this to the image's edge counts as the
# image's edge.
NEAR = 0.005


@dataclass(frozen=True)
class TokenCosines:
    """Cosines of an image and n phrases under one model."""

    pooled: NDArray[np.float64]  # `[n]`, cosine of the pooled image with each phrase
    tokens: NDArray[np.float64]  # `[n, rows, columns]`, cosine of each image token with each phrase
    box: Box  # part of the image under the token grid; beyond 0 to 1 if the model pads
    truncated: list[bool]  # whether each phrase was too long for the text tower


def token_cosines(embedder: Embedder, image: Image.Image, phrases: Sequence[str]) -> TokenCosines:
    """Compares the pooled image and each of its tokens with phrases.

    The tokens are those of C2LIP's cross-attention (`hfcomp.modeling.backbones`). Phrases only pass through the text
    tower. All vectors are L2-normalized, as in C2LIP's released code.

    Args:
        embedder: Model to use.
        image: RGB image from `decode_image`, at least 16 pixels wide and high.
        phrases: Phrases, at least one.

    Raises:
        ValueError: If a phrase is empty, the image is too small or too narrow, or the model's embeddings are NaN or
            infinite.

    Source:
        C2LIP (arXiv 2603.25722), Eqs. 4 and 5, Figure 2.
    """
    import torch

    from hfcomp.evaluation.encoding.evaluated_model import NOT_FINITE
    from hfcomp.modeling import encode_image_tokens

    check_phrases(phrases)
    box = seen_box(embedder.transform, image.size)
    texts = embedder.texts(phrases).vectors.astype(np.float64)
    pixels = embedder.transform.normalize(embedder.transform([image]).to(embedder.device))
    backbone = embedder.backbone.eval()
    with torch.inference_mode():
        pooled, tokens = (vectors[0].double().cpu().numpy() for vectors in encode_image_tokens(backbone, pixels))
    if not (np.isfinite(pooled).all() and np.isfinite(tokens).all()):
        raise ValueError(NOT_FINITE)
    patch = embedder.config.vision_config.patch_size
    grid = [side // patch for side in embedder.transform.size]
    return TokenCosines(
        pooled=texts @ pooled,
        tokens=(texts @ tokens.T).reshape(-1, *grid),
        # The grid covers only whole patches, so crop the box to them.
        box=_crop_to_patches(
            box, [count * patch / side for count, side in zip(grid, embedder.transform.size, strict=True)]
        ),
        truncated=embedder.tokenizer(phrases)[1],
    )


def check_phrases(phrases: Sequence[str]) -> None:
    blank = [phrase for phrase in phrases if not phrase.strip()]
    if blank or not phrases:
        raise ValueError(
            f"phrases: found {blank[0]!r}, expected words."
            if blank
            else "phrases: the list is empty, expected at least one."
        )


def check_temperature(temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature: found {temperature:g}, expected a finite number above 0.")


def attention(cosines: NDArray[np.float64], temperature: float = 1.0) -> NDArray[np.float64]:
    """Computes the softmax over tokens of `cosines / temperature`, times the number of tokens.

    If all tokens are alike, each has attention 1, whatever their number.

    Args:
        cosines: Cosines `[..., rows, columns]`.
        temperature: Softmax temperature, finite and above 0. C2LIP's released code uses 1.

    Returns:
        Attention `[..., rows, columns]`, 0 to `rows * columns`, with mean 1 over each grid.

    Source:
        C2LIP (arXiv 2603.25722), Eq. 6: `attn`, which the paper does not write out.
    """
    check_temperature(temperature)
    # Subtract the largest cosine first, because exp(1 / temperature) overflows at a small temperature.
    weights = np.exp((cosines - cosines.max(axis=(-2, -1), keepdims=True)) / temperature)
    return weights / weights.mean(axis=(-2, -1), keepdims=True)


def evenness(attended: NDArray[np.float64]) -> NDArray[np.float64]:
    """Computes the entropy of an attention as a fraction of its maximum.

    Args:
        attended: Attention `[..., rows, columns]` from `attention`.

    Returns:
        Evenness `[...]` from 0 (all attention on one token) to 1 (uniform); 1 for a single token.
    """
    count = attended.shape[-2] * attended.shape[-1]
    # The logarithm of 1 is 0, so a single token would divide by 0.
    if count == 1:
        return np.ones(attended.shape[:-2])
    shares = attended / count
    # 0 log 0 counts as 0.
    logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return -(shares * logarithms).sum(axis=(-2, -1)) / math.log(count)


def best_token(values: NDArray[np.float64]) -> tuple[int, int]:
    """Returns the row and column, from 0, of the largest of `[rows, columns]`; the first one in a tie."""
    row, column = np.unravel_index(np.argmax(values), values.shape)
    return int(row), int(column)


def difference(
    first: NDArray[np.float64], first_box: Box, second: NDArray[np.float64], second_box: Box
) -> tuple[NDArray[np.float64], Box]:
    """Subtracts the first map from the second on the part of the image that both cover.

    Maps with different grids are compared on cells of the finer size; each cell has the mean over its area.

    Args:
        first: Map `[..., rows, columns]`, constant within each cell.
        first_box: Box that the first map covers.
        second: Map to subtract from, `[..., rows, columns]`.
        second_box: Box that the second map covers.

    Returns:
        The difference `[..., rows, columns]` and the box that it covers.
    """
    left, top = (max(edges) for edges in zip(first_box[:2], second_box[:2], strict=True))
    right, bottom = (min(edges) for edges in zip(first_box[2:], second_box[2:], strict=True))
    maps = ((first, first_box), (second, second_box))
    rows = round((bottom - top) / min((box[3] - box[1]) / values.shape[-2] for values, box in maps))
    columns = round((right - left) / min((box[2] - box[0]) / values.shape[-1] for values, box in maps))
    # Cells are rectangles, so averaging over areas takes one matrix per axis.
    on_shared = [
        _area_weights(rows, (top, bottom), values.shape[-2], box[1::2])
        @ values
        @ _area_weights(columns, (left, right), values.shape[-1], box[::2]).T
        for values, box in maps
    ]
    return on_shared[1] - on_shared[0], (left, top, right, bottom)


def seen_box(transform: PixelTransform, size: tuple[int, int]) -> Box:
    """Measures the part of an image that remains after a processor's resize and crop.

    The measurement uses an image of the same size whose colors encode pixel positions, so it works for any processor.

    Args:
        transform: Pixel transform of the model.
        size: Width and height of the image in pixels, at least 16.

    Returns:
        The box, precise to half a percent; beyond 0 to 1 if the processor pads.

    Raises:
        ValueError: If the image is smaller, or too narrow to be resized.
    """
    width, height = size
    if min(size) < SMALLEST_SIDE:
        raise ValueError(
            f"the image has {width} x {height} pixels, expected at least {SMALLEST_SIDE} x {SMALLEST_SIDE}."
        )
    ramps = np.full((height, width, 3), 255, dtype=np.uint8)
    # Red encodes the column and green the row. Full blue marks image pixels, because padding has no blue.
    ramps[..., 0] = np.round(255 * (np.arange(width) + 0.5) / width)
    ramps[..., 1] = np.round(255 * (np.arange(height)[:, None] + 0.5) / height)
    across, down, full = transform([Image.fromarray(ramps)], where=["the image"])[0].double().numpy()
    rows, columns = (np.flatnonzero((full > 250).any(axis)) for axis in (1, 0))  # padding is black
    left, right = _ramp_ends(across[rows][:, columns].mean(0), columns, across.shape[1])
    top, bottom = _ramp_ends(down[rows][:, columns].mean(1), rows, down.shape[0])
    return left, top, right, bottom


def _ramp_ends(values: NDArray[np.float64], places: NDArray[np.int64], count: int) -> tuple[float, float]:
    """Extrapolates the start and end of a linear ramp from its values at some of `count` pixels."""
    cut = len(values) // 8  # near an edge, resizing averages fewer pixels
    inner = slice(cut, len(values) - cut)
    # Resizing and cropping keep the ramp linear, so a line through its inner values gives its ends.
    slope, start = np.polyfit((places[inner] + 0.5) / count, values[inner] / 255, 1)
    return tuple(float(round(end)) if abs(end - round(end)) < NEAR else float(end) for end in (start, start + slope))


def _crop_to_patches(box: Box, shares: Sequence[float]) -> Box:
    """Crops a box to whole patches, which cover the fractions `shares` of its height and width."""
    left, top, right, bottom = box
    return left, top, left + shares[1] * (right - left), top + shares[0] * (bottom - top)


def _area_weights(
    cells: int, span: tuple[float, float], own_cells: int, own_span: tuple[float, float]
) -> NDArray[np.float64]:
    """Returns the fraction `[cells, own_cells]` of each cell of `span` inside each cell of `own_span`."""
    edges, own_edges = np.linspace(*span, cells + 1)[:, None], np.linspace(*own_span, own_cells + 1)[None]
    overlap = np.minimum(edges[1:], own_edges[:, 1:]) - np.maximum(edges[:-1], own_edges[:, :-1])
    overlap = overlap.clip(min=0)
    # Divide by the covered area so that a cell beyond the map's edge is not pulled toward 0.
    return overlap / overlap.sum(1, keepdims=True)
