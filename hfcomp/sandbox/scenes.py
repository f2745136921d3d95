"""Scenes of the sandbox world: one to three coloured shapes on a 3 x 3 grid, drawn from a random generator."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

GRID = 3
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "star", "ring", "heart")
# Bright objects on dark backgrounds: with mixed brightness a small model learns colours long before shapes.
COLOURS = {
    "red": (245, 80, 80),
    "green": (80, 215, 90),
    "blue": (95, 140, 250),
    "yellow": (245, 230, 70),
    "purple": (185, 100, 250),
    "cyan": (80, 230, 235),
    "pink": (250, 155, 210),
    "white": (240, 240, 240),
}
SIZES = ("small", "large")
BACKGROUNDS = {"black": (8, 8, 8), "navy": (12, 16, 60), "brown": (55, 30, 12), "mossy": (30, 45, 15)}
JITTERS = 3
TEXTURES = 1 << 20
HELD_OUT_ONE_IN = 5


@dataclass(frozen=True, slots=True)
class Thing:
    """One object of a scene.

    Attributes:
        shape: one of `SHAPES`.
        colour: one of `COLOURS`.
        size: one of `SIZES`.
        row: grid row, 0 (top) to 2.
        column: grid column, 0 (left) to 2.
        jitter: vertical and horizontal index, each 0 to `JITTERS` - 1, of its half-pixel shift in the cell.
    """

    shape: str
    colour: str
    size: str
    row: int
    column: int
    jitter: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class Scene:
    """What an image shows. No two things share a shape, a colour or a cell.

    Attributes:
        things: one to three things; the first two share a row or a column, so that their relation has one name.
        background: one of `BACKGROUNDS`.
        texture: which pixel noise lies over the image, 0 to `TEXTURES` - 1.
    """

    things: tuple[Thing, ...]
    background: str
    texture: int = 0


def draw_scene(generator: np.random.Generator, num_things: int) -> Scene:
    """Draw a scene.

    Args:
        generator: source of randomness; the same state gives the same scene.
        num_things: number of objects, 1 to 3.

    Returns:
        A scene whose shapes, colours and cells are all different.

    Raises:
        ValueError: `num_things` is not 1, 2 or 3.
    """
    if num_things not in (1, 2, 3):
        raise ValueError(f"a scene holds 1 to 3 things, not {num_things}.")
    # One call for all numbers: thousands of scenes a second hang on it.
    numbers = iter(generator.random(8 + 5 * num_things).tolist())
    shapes, colours = list(SHAPES), list(COLOURS)
    things = tuple(
        Thing(
            _take(shapes, next(numbers)),
            _take(colours, next(numbers)),
            SIZES[int(next(numbers) * len(SIZES))],
            *cell,
            (int(next(numbers) * JITTERS), int(next(numbers) * JITTERS)),
        )
        for cell in _draw_cells(numbers, num_things)
    )
    return Scene(things, _take(list(BACKGROUNDS), next(numbers)), int(next(numbers) * TEXTURES))


def is_held_out(scene: Scene) -> bool:
    """Whether a scene belongs to evaluation: one in `HELD_OUT_ONE_IN`, the same ones in every run and process.

    The rule reads what the scene shows and neither jitter nor texture, so that no training image shows an
    evaluation scene with other noise.

    Args:
        scene: any scene; the order of its things does not matter.

    Returns:
        True for evaluation scenes, False for scenes that training may show.
    """
    shown = sorted(f"{t.shape} {t.colour} {t.size} {t.row} {t.column}" for t in scene.things)
    return zlib.crc32(" ".join([scene.background, *shown]).encode()) % HELD_OUT_ONE_IN == 0


def _take(options: list, number: float):
    """Remove and return the option at `number`, 0 to 1, of the list."""
    return options.pop(int(number * len(options)))


def _draw_cells(numbers: Iterator[float], num_things: int) -> list[tuple[int, int]]:
    """Cells (row, column), all different; the first two share a row or a column."""
    lines = list(range(GRID))
    line, first, second = int(next(numbers) * GRID), _take(lines, next(numbers)), _take(lines, next(numbers))
    cells = [(line, first), (line, second)]
    if next(numbers) < 0.5:
        cells = [(column, row) for row, column in cells]
    free = [(row, column) for row in range(GRID) for column in range(GRID) if (row, column) not in cells]
    return [*cells, _take(free, next(numbers))][:num_things]
