"""From pixels back to scenes, so that a dataset is judged by what its images show."""

from functools import cache
from itertools import product

import numpy as np

from hfcomp.sandbox.rendering import CELL, NOISE, SIDE, render
from hfcomp.sandbox.scenes import BACKGROUNDS, COLORS, GRID, JITTERS, SHAPES, SIZES, TEXTURES, Scene, Thing

CENTER = slice(CELL // 2 - 1, CELL // 2 + 1)


def see(images):
    """The scenes of images (36 x 36, anything that numpy reads), their noise unknown."""
    return [_see(np.asarray(image).tobytes()) for image in images]


def differing_cells(image, other):
    """The grid cells in which two images have another pixel."""
    differs = np.asarray(image) != np.asarray(other)
    cells = differs.reshape(GRID, CELL, GRID, CELL, -1).any(axis=(1, 3, 4))
    return {tuple(cell) for cell in np.argwhere(cells).tolist()}


@cache
def _see(content):
    pixels = np.frombuffer(content, dtype=np.uint8).reshape(SIDE, SIDE, 3).astype(np.float32)
    # Six cells of nine or more are empty, so that the pixel in the middle is the background's.
    ground = np.median(pixels.reshape(-1, 3), axis=0)
    background = min(BACKGROUNDS, key=lambda name: np.abs(ground - BACKGROUNDS[name]).sum())
    cells = _cells(pixels[None])[0]
    away = np.abs(cells - BACKGROUNDS[background]).max(axis=-1) > NOISE + 1
    things, specks = {}, []
    for cell in np.ndindex(GRID, GRID):
        seen = away[cell].copy()
        if not seen.any():
            continue
        seen[CENTER, CENTER] = False
        if seen.any():
            things.setdefault(_look(background, cells[cell]), []).append(cell)
        else:
            specks.append(cell)
    things = tuple(Thing(*look, cells[0], tuple(cells[1:])) for look, cells in things.items())
    return Scene(things, background, tuple(specks))


def _look(background, cell):
    looks, pixels, squares = _templates(background)
    return looks[int((squares - 2 * (pixels @ _coarse(cell[None])[0])).argmin())]


@cache
def _templates(background):
    """Every look of a thing, its pixels `[looks, numbers]` and the sums of their squares `[looks]`."""
    looks = list(product(SHAPES, COLORS, SIZES, TEXTURES))
    # Nine cells, nine jitters: one image has all of a look.
    placed = [((row, column), (row, column)) for row, column in np.ndindex(GRID, JITTERS)]
    scenes = [Scene(tuple(Thing(*look, cell, (), jitter) for cell, jitter in placed), background) for look in looks]
    pixels = _coarse(_cells(render(scenes).astype(np.float32)).reshape(-1, CELL, CELL, 3))
    return [look for look in looks for _ in placed], pixels, np.square(pixels).sum(axis=1)


def _cells(images):
    """`[N, 36, 36, 3]` as `[N, 3, 3, 12, 12, 3]`."""
    return images.reshape(-1, GRID, CELL, GRID, CELL, 3).transpose(0, 1, 3, 2, 4, 5)


def _coarse(cells):
    """`[N, 12, 12, 3]` in blocks of four pixels, which averages noise and keeps stripes: `[N, 108]`."""
    return cells.reshape(-1, CELL // 2, 2, CELL // 2, 2, 3).mean(axis=(2, 4)).reshape(len(cells), -1)
