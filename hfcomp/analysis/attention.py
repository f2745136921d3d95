"""Where the tokens of an image attend for a phrase, as in C2LIP's cross-attended loss, and how two models differ."""

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
# Two 8-bit ramps locate an edge only this precisely. An edge closer than this to the image's own counts as the image's
# edge.
NEAR = 0.005


@dataclass(frozen=True)
class TokenCosines:
    """How one model relates an image to n phrases."""

    pooled: NDArray[np.float64]  # `[n]`, cosine of the pooled image with each phrase
    tokens: NDArray[np.float64]  # `[n, rows, columns]`, cosine of each image token with each phrase
    box: Box  # the part of the image under the grid of tokens; beyond 0 to 1 if the model pads
    truncated: list[bool]  # whether each phrase was longer than the text tower


def token_cosines(embedder: Embedder, image: Image.Image, phrases: Sequence[str]) -> TokenCosines:
    """Compares the pooled image and each of its tokens with phrases.

    Tokens are those of C2LIP's cross-attention (`hfcomp.modeling.backbones`), and a phrase goes through the
    text tower alone; all are L2-normalized, as in C2LIP's released code.

    Args:
        image: RGB, as `decode_image` returns it, at least 16 pixels wide and high.
        phrases: at least one.

    Raises:
        ValueError: for an empty phrase, an image that is too small or too long and thin, or a model whose embeddings
            are NaN or infinite.

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
        pooled, tokens = (one[0].double().cpu().numpy() for one in encode_image_tokens(backbone, pixels))
    if not (np.isfinite(pooled).all() and np.isfinite(tokens).all()):
        raise ValueError(NOT_FINITE)
    patch = embedder.config.vision_config.patch_size
    grid = [side // patch for side in embedder.transform.size]
    return TokenCosines(
        pooled=texts @ pooled,
        tokens=(texts @ tokens.T).reshape(-1, *grid),
        # The grid covers only whole patches, so the box loses the pixels right of and below them.
        box=_crop_to_patches(
            box, [count * patch / side for count, side in zip(grid, embedder.transform.size, strict=True)]
        ),
        truncated=embedder.tokenizer(phrases)[1],
    )


def check_phrases(phrases: Sequence[str]) -> None:
    blank = [phrase for phrase in phrases if not phrase.strip()]
    if blank or not phrases:
        raise ValueError(f"phrases: found {blank[0]!r}, expected words." if blank else "phrases: found none.")


def check_temperature(temperature: float) -> None:
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature: found {temperature:g}, expected a finite number above 0.")


def attention(cosines: NDArray[np.float64], temperature: float = 1.0) -> NDArray[np.float64]:
    """Computes the softmax over tokens of `cosines / temperature`, times the number of tokens.

    So 1 is the attention of every token if all are alike, whatever their number.

    Args:
        cosines: `[..., rows, columns]`.
        temperature: finite and above 0; 1 is that of C2LIP's released code.

    Returns:
        `[..., rows, columns]`, 0 to `rows * columns`, with mean 1 over each grid.

    Source:
        C2LIP (arXiv 2603.25722), Eq. 6: `attn`, which the paper does not write out.
    """
    check_temperature(temperature)
    # The largest cosine is subtracted first: exp(1 / temperature) overflows at a small temperature.
    weights = np.exp((cosines - cosines.max(axis=(-2, -1), keepdims=True)) / temperature)
    return weights / weights.mean(axis=(-2, -1), keepdims=True)


def evenness(attended: NDArray[np.float64]) -> NDArray[np.float64]:
    """Computes the entropy of an attention as a fraction of its maximum.

    Args:
        attended: `[..., rows, columns]`, from `attention`.

    Returns:
        `[...]`, from 0, all on one token, to 1, uniform; 1 for a single token.
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
    """Row and column, from 0, of the largest of `[rows, columns]`, the first of equal ones."""
    row, column = np.unravel_index(np.argmax(values), values.shape)
    return int(row), int(column)


def difference(
    first: NDArray[np.float64], first_box: Box, second: NDArray[np.float64], second_box: Box
) -> tuple[NDArray[np.float64], Box]:
    """Subtracts the first map from the second where both cover the image.

    Maps of different grids are compared on cells as small as the finer ones: a cell has the mean over its area.

    Args:
        first: `[..., rows, columns]`, constant within each cell.
        first_box: what it covers.

    Returns:
        `[..., rows, columns]` and the box that it covers.
    """
    left, top = (max(one, other) for one, other in zip(first_box[:2], second_box[:2], strict=True))
    right, bottom = (min(one, other) for one, other in zip(first_box[2:], second_box[2:], strict=True))
    maps = ((first, first_box), (second, second_box))
    rows = round((bottom - top) / min((box[3] - box[1]) / values.shape[-2] for values, box in maps))
    columns = round((right - left) / min((box[2] - box[0]) / values.shape[-1] for values, box in maps))
    # Cells are rectangles, so a mean over an area takes one matrix per axis.
    on_shared = [
        _means(rows, (top, bottom), values.shape[-2], box[1::2])
        @ values
        @ _means(columns, (left, right), values.shape[-1], box[::2]).T
        for values, box in maps
    ]
    return on_shared[1] - on_shared[0], (left, top, right, bottom)


def seen_box(transform: PixelTransform, size: tuple[int, int]) -> Box:
    """The part of an image that is left after a processor's resize and crop.

    It is measured with an image of that size whose colors encode pixel positions, so it works for any processor.

    Args:
        transform: of the model.
        size: width and height of the image in pixels, 16 or more.

    Returns:
        Within half a percent; beyond 0 to 1 where the processor pads.

    Raises:
        ValueError: for an image that is smaller, or too long and thin to be resized.
    """
    width, height = size
    if min(size) < SMALLEST_SIDE:
        raise ValueError(f"the image is {width} x {height} pixels. Expected at least {SMALLEST_SIDE} either way.")
    ramps = np.full((height, width, 3), 255, dtype=np.uint8)
    # Red encodes the column and green the row. Full blue marks pixels of the image, as padding has none.
    ramps[..., 0] = np.round(255 * (np.arange(width) + 0.5) / width)
    ramps[..., 1] = np.round(255 * (np.arange(height)[:, None] + 0.5) / height)
    across, down, full = transform([Image.fromarray(ramps)], where=["the image"])[0].double().numpy()
    rows, columns = (np.flatnonzero((full > 250).any(axis)) for axis in (1, 0))  # padding is black
    left, right = _ends(across[rows][:, columns].mean(0), columns, across.shape[1])
    top, bottom = _ends(down[rows][:, columns].mean(1), rows, down.shape[0])
    return left, top, right, bottom


def _ends(values: NDArray[np.float64], places: NDArray[np.int64], count: int) -> tuple[float, float]:
    """Where a straight ramp starts and ends, from its values at some of `count` pixels."""
    cut = len(values) // 8  # near an edge, a resize averages fewer pixels
    inner = slice(cut, len(values) - cut)
    # A resize and a crop keep the ramp straight, so a line through its inner values shows where it would end.
    slope, start = np.polyfit((places[inner] + 0.5) / count, values[inner] / 255, 1)
    return tuple(float(round(end)) if abs(end - round(end)) < NEAR else float(end) for end in (start, start + slope))


def _crop_to_patches(box: Box, shares: Sequence[float]) -> Box:
    """A box without what is right of and below the last whole patch; `shares` of height and width remain."""
    left, top, right, bottom = box
    return left, top, left + shares[1] * (right - left), top + shares[0] * (bottom - top)


def _means(
    cells: int, span: tuple[float, float], own_cells: int, own_span: tuple[float, float]
) -> NDArray[np.float64]:
    """`[cells, own_cells]`: the fraction of each cell of `span` inside each cell of `own_span`."""
    edges, own_edges = np.linspace(*span, cells + 1)[:, None], np.linspace(*own_span, own_cells + 1)[None]
    overlap = np.minimum(edges[1:], own_edges[:, 1:]) - np.maximum(edges[:-1], own_edges[:, :-1])
    overlap = overlap.clip(min=0)
    # Divided by the covered area: a cell that sticks out of the map is not pulled towards 0.
    return overlap / overlap.sum(1, keepdims=True)
