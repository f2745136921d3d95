"""Draws attention maps for phrases: the image, a map per model, and the difference of the maps."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hfcomp.analysis.attention import Box, TokenCosines, attention, best_token, difference
from hfcomp.reporting.figures import check_matplotlib, png
from hfcomp.writing import write_bytes

QUANTITIES = ("attention", "cosine")
COLORS, CHANGE_COLORS = "viridis", "PRGn"  # distinct for any color vision; green means more, as in the paper
WHOLE = (0.0, 0.0, 1.0, 1.0)
PANEL_WIDTH = 2.7  # inches
PANEL_HEIGHTS = (1.2, 4.5)  # smallest and largest, in inches
TITLE_HEIGHT, BAR_HEIGHT, BELOW_HEIGHT = 0.5, 0.12, 1.3  # inches
LETTERS = 38  # characters per line above a panel
OPACITY = 0.72
PALE = 0.7  # share of white in the image below a map so that white also looks white on a dark image
LARGEST_SIDE = 1024  # pixels of the drawn image; a panel has about 400
# Changes below this fraction of the maps' range stay pale because rounding should not look like a change.
SMALLEST_CHANGE = 0.01
TEXT = {"fontsize": 8.5, "loc": "left", "parse_math": False}  # phrases may contain dollar signs


@dataclass(frozen=True)
class Maps:
    """Maps to draw for n phrases."""

    # Maps `[n, rows, columns]` by model, with the box of the image that they cover.
    values: dict[str, tuple[NDArray[np.float64], Box]]
    # Second model's maps minus the first's, with their box; None for one model.
    change: tuple[NDArray[np.float64], Box] | None

    @property
    def columns(self) -> int:
        return 1 + len(self.values) + (self.change is not None)


def attention_maps(cosines: Mapping[str, TokenCosines], *, quantity: str, temperature: float) -> Maps:
    """Computes the maps of one or two models, and their difference."""
    if quantity not in QUANTITIES:
        raise ValueError(f"quantity: found {quantity!r}, expected {' or '.join(QUANTITIES)}.")
    if not 1 <= len(cosines) <= 2:
        raise ValueError(f"found {len(cosines)} models, expected 1 or 2.")
    values = {
        name: (attention(own.tokens, temperature) if quantity == "attention" else own.tokens, own.box)
        for name, own in cosines.items()
    }
    maps = list(values.values())
    return Maps(values, difference(*maps[0], *maps[1]) if len(maps) == 2 else None)


def draw_attention(
    path: str | Path,
    image: Image.Image,
    phrases: Sequence[str],
    cosines: Mapping[str, TokenCosines],
    *,
    quantity: str = "attention",
    temperature: float = 1.0,
) -> Path:
    """Draws one row per phrase: the image, each model's map, and the second model's map minus the first's.

    Maps cover the part of the image that the model sees. All maps share one color scale, and all differences share
    another that is symmetric around 0. The best token of each map has a white frame.

    Args:
        path: PNG file to write.
        image: Upright RGB image.
        phrases: Phrases, in the order of the cosines.
        cosines: Cosines by model name, for one or two models.
        quantity: Quantity that the colors show: "attention", as a multiple of its mean, or "cosine".
        temperature: Temperature of the attention.
    """
    maps = attention_maps(cosines, quantity=quantity, temperature=temperature)
    check_matplotlib(path)
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    if max(image.size) > LARGEST_SIDE:
        image = image.copy()
        image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    _draw(figure, image, phrases, cosines, maps, quantity)
    caption = "\n".join(textwrap.wrap(_caption(maps, cosines, quantity, temperature), LETTERS * maps.columns))
    figure.supxlabel(caption, fontsize=8, x=0.01, ha="left", parse_math=False)
    # Constrained layout does not reserve room for a long title above a narrow panel.
    write_bytes(Path(path), png(figure, bbox_inches="tight", pad_inches=0.06))
    return Path(path)


def _draw(
    figure: Any,
    image: Image.Image,
    phrases: Sequence[str],
    cosines: Mapping[str, TokenCosines],
    maps: Maps,
    quantity: str,
) -> None:
    columns = maps.columns
    height = np.clip(PANEL_WIDTH * image.height / image.width, *PANEL_HEIGHTS) + TITLE_HEIGHT
    figure.set_size_inches(columns * PANEL_WIDTH, len(phrases) * height + BELOW_HEIGHT)
    # One row per phrase, and a thin last row for the color bars.
    grid = figure.add_gridspec(len(phrases) + 1, columns, height_ratios=[*[height] * len(phrases), BAR_HEIGHT])
    scales = _scales(maps)
    for row, phrase in enumerate(phrases):
        axes = [figure.add_subplot(grid[row, column]) for column in range(columns)]
        _draw_row(axes, row, image, phrase, cosines, maps, scales)
    # The maps of all models share a color bar, and the difference has its own.
    bar = figure.add_subplot(grid[-1, 1 : 1 + len(cosines)])
    even = quantity == "attention"
    span = f"{quantity}, {scales[0][0]:.3f} to {scales[0][1]:.3f}"
    _color_bar(figure, bar, COLORS, scales[0], f"{span} (line: all alike)" if even else span)
    if even:
        bar.axvline(1, color="black", linewidth=1.2)
    if maps.change is not None:
        _color_bar(figure, figure.add_subplot(grid[-1, -1]), CHANGE_COLORS, scales[1], f"change in {quantity}")


def _scales(maps: Maps) -> tuple[tuple[float, float], tuple[float, float]]:
    # One scale for all maps makes colors comparable between phrases and models.
    every = np.concatenate([values.ravel() for values, _ in maps.values.values()])
    low, span = float(every.min()), max(float(np.ptp(every)), 1e-6)
    most = 0.0 if maps.change is None else float(np.abs(maps.change[0]).max())
    most = max(most, SMALLEST_CHANGE * span)
    # A symmetric scale gives no change the middle color.
    return (low, low + span), (-most, most)


def _draw_row(
    axes: Sequence[Any],
    row: int,
    image: Image.Image,
    phrase: str,
    cosines: Mapping[str, TokenCosines],
    maps: Maps,
    scales: tuple[tuple[float, float], tuple[float, float]],
) -> None:
    _draw_image(axes[0], image, f"“{' '.join(phrase.split())}”", pale=0.0)
    # With a difference there is one more axis than models.
    for axis, (name, model_cosines) in zip(axes[1:], cosines.items(), strict=False):
        values, box = maps.values[name]
        # The best token by cosine also has the most attention, because a softmax keeps the order.
        best = best_token(model_cosines.tokens[row])
        numbers = f"pooled {model_cosines.pooled[row]:.3f}, best token {model_cosines.tokens[row][best]:.3f}"
        numbers += ", truncated" if model_cosines.truncated[row] else ""
        _draw_image(axis, image, numbers if row else f"{name}\n{numbers}")
        _draw_map(axis, values[row], box, image.size, COLORS, scales[0])
        _frame_token(axis, best, values[row].shape, box, image.size)
    if maps.change is not None:
        first, second = cosines
        _draw_image(axes[-1], image, "" if row else f"{second}\nminus {first}")
        _draw_map(axes[-1], maps.change[0][row], maps.change[1], image.size, CHANGE_COLORS, scales[1])


def _draw_image(axes: Any, image: Image.Image, title: str, pale: float = PALE) -> None:
    """Draws the image; if `pale` is above 0, in a lighter gray."""
    if pale:
        # A gray image cannot be mistaken for part of the map.
        image = Image.blend(image.convert("L").convert("RGB"), Image.new("RGB", image.size, "white"), pale)
    axes.imshow(image, extent=(0, image.width, image.height, 0))
    parts = [textwrap.wrap(part, LETTERS, max_lines=2, placeholder=" ...") for part in title.split("\n")]
    lines = [line for part in parts for line in part]
    axes.set_title("\n".join(lines), **TEXT)
    axes.set_xticks([])
    axes.set_yticks([])


def _draw_map(
    axes: Any, values: NDArray[np.float64], box: Box, size: tuple[int, int], colors: str, scale: tuple[float, float]
) -> None:
    left, top, right, bottom = _pixel_box(box, size)
    axes.imshow(
        values,
        extent=(left, right, bottom, top),
        cmap=colors,
        vmin=scale[0],
        vmax=scale[1],
        alpha=OPACITY,
        interpolation="nearest",
    )
    if box != WHOLE:  # on a bright image, the unseen part looks like a change of 0
        _outline(axes, (left, top), (right - left, bottom - top), (("black", 1.0),))
    # If the model pads, the map reaches beyond the image.
    axes.set_xlim(min(0, left), max(size[0], right))
    axes.set_ylim(max(size[1], bottom), min(0, top))


def _frame_token(axes: Any, token: tuple[int, int], grid: tuple[int, ...], box: Box, size: tuple[int, int]) -> None:
    left, top, right, bottom = _pixel_box(box, size)
    high, wide = (bottom - top) / grid[0], (right - left) / grid[1]
    corner = (left + token[1] * wide, top + token[0] * high)
    # A white line would vanish on a bright image, so it has a black edge.
    _outline(axes, corner, (wide, high), (("black", 2.6), ("white", 1.3)))


def _outline(
    axes: Any, corner: tuple[float, float], size: tuple[float, float], lines: Sequence[tuple[str, float]]
) -> None:
    from matplotlib.patches import Rectangle

    for color, width in lines:
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=color, linewidth=width))


def _pixel_box(box: Box, size: tuple[int, int]) -> Box:
    return box[0] * size[0], box[1] * size[1], box[2] * size[0], box[3] * size[1]


def _color_bar(figure: Any, axes: Any, colors: str, scale: tuple[float, float], label: str) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    colored = ScalarMappable(Normalize(*scale), colors)
    ticks = {"ticks": MaxNLocator(5), "format": ScalarFormatter(useOffset=False)}
    bar = figure.colorbar(colored, cax=axes, orientation="horizontal", alpha=OPACITY, **ticks)
    bar.set_label(label, fontsize=8)
    axes.tick_params(labelsize=8)


def _caption(maps: Maps, cosines: Mapping[str, TokenCosines], quantity: str, temperature: float) -> str:
    caption = "Colors: cosine of each image token with the phrase."
    if quantity == "attention":
        caption = (
            "Colors: softmax over the image's tokens of cosine(token, phrase) / "
            f"{temperature:g}, times the number of tokens."
        )
    caption += (
        " Each cell of a model is one token; the best token is framed. Pooled, best token: cosines with the phrase."
    )
    if any(any(model_cosines.truncated) for model_cosines in cosines.values()):
        caption += " Truncated: the phrase is too long for the text tower."
    if any(box != WHOLE for _, box in maps.values.values()):
        caption += " Gray, outside the thin line: not seen by the model."
    return caption + _describe_cells(maps)


def _describe_cells(maps: Maps) -> str:
    """Describes the cells of the difference; empty if they are the tokens of both models."""
    grids, boxes = ([values_and_box[part] for values_and_box in maps.values.values()] for part in (0, 1))
    shapes = [f"{high} x {wide}" for high, wide in (values.shape[-2:] for values in grids)]
    if maps.change is None or (len(set(shapes)) == 1 and len(set(boxes)) == 1):
        return ""
    rows, columns = maps.change[0].shape[-2:]
    parts = "" if len(set(boxes)) == 1 else " on different parts of the image"
    return (
        f" The models have {' and '.join(shapes)} tokens{parts}; the difference uses {rows} x {columns} cells on the "
        "part that both see."
    )
