"""Renders scenes to pixels, and encodes images and masks."""

import io
from collections.abc import Sequence
from functools import cache

import numpy as np
from PIL import Image, ImageDraw

from hfcomp.sandbox.scenes import BACKGROUNDS, COLORS, GRID, JITTERS, NOISES, SHAPES, SIZES, TEXTURES, Cell, Scene

# A cell is one patch of the sandbox model, which puts a whole shape into one token.
CELL = 12
SIDE = GRID * CELL
DIAMETERS = {"small": 7, "large": 11}
NOISE = 6
SPECK = 70  # levels above the background
STRIPE = 2  # width of a stripe in pixels; every other stripe is dark
DARK_STRIPE = 0.3  # share of the color

_SUPERSAMPLING = 8
_COLORS = np.array(list(COLORS.values()), dtype=np.float32)
_BACKGROUNDS = np.array(list(BACKGROUNDS.values()), dtype=np.float32)
_SHAPE_INDEX = {name: i for i, name in enumerate(SHAPES)}
_SIZE_INDEX = {name: i for i, name in enumerate(SIZES)}
_TEXTURE_INDEX = {name: i for i, name in enumerate(TEXTURES)}
_COLOR_INDEX = {name: i for i, name in enumerate(COLORS)}
_BACKGROUND_INDEX = {name: i for i, name in enumerate(BACKGROUNDS)}


def render(scenes: Sequence[Scene]) -> np.ndarray:
    """Renders scenes.

    Every thing stays inside its own cells, and the noise depends only on `Scene.noise`. So the images of two scenes
    that differ in one thing differ only in the cells of that thing.

    Returns:
        RGB pixels `[N, 36, 36, 3]`, uint8.
    """
    background = _BACKGROUNDS[[_BACKGROUND_INDEX[scene.background] for scene in scenes]]
    # Render all things of all scenes at once by indexing tables. One by one would take most of the time of a dataset.
    cells = np.broadcast_to(background[:, None, None, None, None], (len(scenes), GRID, GRID, CELL, CELL, 3)).copy()
    looks = [(n, *cell, *look) for n, scene in enumerate(scenes) for look, taken in _looks(scene) for cell in taken]
    if looks:
        n, row, column, color, shape, size, texture, vertical, horizontal = np.array(looks).T
        mask = _masks()[shape, size, texture, vertical, horizontal][..., None]
        cells[n, row, column] += mask * (_COLORS[color] - background[n])[:, None, None]
    specks = [(n, *cell) for n, scene in enumerate(scenes) for cell in scene.specks]
    if specks:
        n, row, column = np.array(specks).T
        cells[n, row, column, CELL // 2 - 1 : CELL // 2 + 1, CELL // 2 - 1 : CELL // 2 + 1] += SPECK
    pixels = cells.transpose(0, 1, 3, 2, 4, 5).reshape(len(scenes), SIDE, SIDE, 3)
    pixels += _noises()[[scene.noise for scene in scenes]].reshape(pixels.shape)
    return np.clip(pixels, 0, 255, out=pixels).astype(np.uint8)


def _looks(scene: Scene) -> list[tuple[tuple[int, ...], tuple[Cell, ...]]]:
    """Returns the look of each thing (color, shape, size, texture, two jitters, as indices), and its cells."""
    return [
        (
            (
                _COLOR_INDEX[thing.color],
                _SHAPE_INDEX[thing.shape],
                _SIZE_INDEX[thing.size],
                _TEXTURE_INDEX[thing.texture],
                *thing.jitter,
            ),
            thing.cells,
        )
        for thing in scene.things
    ]


def changed_cells(scene: Scene, other: Scene) -> frozenset[Cell]:
    """Returns the grid cells in which two scenes with equal background, noise and specks differ."""
    first, second = ({(cell, look) for look, cells in _looks(each) for cell in cells} for each in (scene, other))
    return frozenset(cell for cell, _ in first ^ second)


@cache
def encode_mask(cells: frozenset[Cell]) -> bytes:
    """Encodes a PNG with 36 x 36 gray pixels: white in the given grid cells, black elsewhere."""
    mask = np.zeros((GRID, CELL, GRID, CELL), dtype=np.uint8)
    for row, column in cells:
        mask[row, :, column] = 255
    file = io.BytesIO()
    Image.fromarray(mask.reshape(SIDE, SIDE)).save(file, format="png")
    return file.getvalue()


def encode_images(pixels: np.ndarray) -> list[bytes]:
    """Encodes RGB pixels `[N, 36, 36, 3]`, uint8, as N BMP files."""
    # Use BMP, because noise hardly compresses, and a BMP is read two to three times faster than a PNG. A BMP consists
    # of a header, which is the same for all images of one size, and the BGR rows from the bottom up, each padded to a
    # multiple of four bytes. Rows of 36 pixels need no padding.
    header = _bmp_header()
    return [header + image.tobytes() for image in pixels[:, ::-1, :, ::-1]]


@cache
def _bmp_header() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE)).save(file, format="bmp")
    return file.getvalue()[: -SIDE * SIDE * 3]


@cache
def _noises() -> np.ndarray:
    """Returns noise `[NOISES, 36 * 36 * 3]` in levels from -`NOISE` to `NOISE`."""
    # A view of one strip, in which noise n starts at n: a million noise images take 1 MB instead of 4 GB.
    size = SIDE * SIDE * 3
    strip = np.random.default_rng(0).integers(-NOISE, NOISE + 1, size=NOISES + size - 1, dtype=np.int8)
    return np.lib.stride_tricks.sliding_window_view(strip, size)


@cache
def _masks() -> np.ndarray:
    """Returns antialiased coverage `[shape, size, texture, vertical jitter, horizontal jitter, 12, 12]`, 0 to 1."""
    masks = np.empty((len(SHAPES), len(SIZES), len(TEXTURES), JITTERS, JITTERS, CELL, CELL), dtype=np.float32)
    stripes = np.where(np.arange(CELL) // STRIPE % 2, 1, DARK_STRIPE)[:, None]
    for shape, size, vertical, horizontal in np.ndindex(len(SHAPES), len(SIZES), JITTERS, JITTERS):
        # Shift by half a pixel, so that a redrawn thing differs but stays inside its cell.
        center = (CELL / 2 + (horizontal - 1) / 2, CELL / 2 + (vertical - 1) / 2)
        plain = _mask(SHAPES[shape], DIAMETERS[SIZES[size]], center)
        masks[shape, size, :, vertical, horizontal] = plain, plain * stripes
    return masks


def _mask(shape: str, diameter: float, center: tuple[float, float]) -> np.ndarray:
    """Returns the coverage `[12, 12]` of one shape; diameter and center (x, y) are in pixels."""
    # Draw at eight times the size and average, because Pillow draws hard edges.
    canvas = Image.new("L", (CELL * _SUPERSAMPLING,) * 2)
    x, y = (_SUPERSAMPLING * value for value in center)
    _DRAW[shape](ImageDraw.Draw(canvas), x, y, _SUPERSAMPLING * diameter / 2)
    blocks = np.asarray(canvas, dtype=np.float32).reshape(CELL, _SUPERSAMPLING, CELL, _SUPERSAMPLING)
    return blocks.mean(axis=(1, 3)) / 255


def _polygon(*corners: tuple[float, float]):
    """Returns a function that draws the polygon with these corners, in units of the radius around the center."""
    return lambda draw, x, y, r: draw.polygon([(x + r * u, y + r * v) for u, v in corners], fill=255)


def _star_corners() -> list[tuple[float, float]]:
    angles = np.arange(10) * np.pi / 5 - np.pi / 2
    return [(r * np.cos(a), r * np.sin(a)) for a, r in zip(angles, [1.0, 0.42] * 5, strict=True)]


def _disc(draw: ImageDraw.ImageDraw, x: float, y: float, r: float, fill: int = 255) -> None:
    # Pillow's boxes include their last pixel.
    draw.ellipse((x - r, y - r, x + r - 1, y + r - 1), fill=fill)


def _ring(draw: ImageDraw.ImageDraw, x: float, y: float, r: float) -> None:
    _disc(draw, x, y, r)
    _disc(draw, x, y, 0.55 * r, fill=0)


def _cross(draw: ImageDraw.ImageDraw, x: float, y: float, r: float) -> None:
    arm = 0.3 * r
    draw.rectangle((x - r, y - arm, x + r - 1, y + arm - 1), fill=255)
    draw.rectangle((x - arm, y - r, x + arm - 1, y + r - 1), fill=255)


def _heart(draw: ImageDraw.ImageDraw, x: float, y: float, r: float) -> None:
    for side in (-1, 1):
        _disc(draw, x + side * 0.5 * r, y - 0.4 * r, 0.5 * r)
    _polygon((-0.95, -0.2), (0.95, -0.2), (0, 0.95))(draw, x, y, r)


_DRAW = {
    "circle": _disc,
    "square": _polygon((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    "triangle": _polygon((0, -0.95), (0.98, 0.85), (-0.98, 0.85)),
    "diamond": _polygon((0, -0.98), (0.8, 0), (0, 0.98), (-0.8, 0)),
    "cross": _cross,
    "star": _polygon(*_star_corners()),
    "ring": _ring,
    "heart": _heart,
}
