"""Scenes of the sandbox world: one to three colored shapes on a 3 x 3 grid, drawn from a random generator."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

GRID = 3
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "star", "ring", "heart")
# Bright objects on dark backgrounds: with mixed brightness a small model learns colors long before shapes.
COLORS = {
    "red": (245, 70, 70),
    "orange": (245, 150, 45),
    "yellow": (245, 235, 70),
    "pink": (250, 150, 215),
    "green": (80, 215, 90),
    "cyan": (80, 230, 235),
    "blue": (85, 130, 250),
    "purple": (180, 90, 250),
}
SIZES = ("small", "large")
TEXTURES = ("plain", "striped")
BACKGROUNDS = {
    "black": (8, 8, 8),
    "navy": (12, 16, 60),
    "brown": (55, 30, 12),
    "mossy": (30, 45, 15),
    "plum": (48, 12, 44),
    "slate": (38, 44, 52),
}
JITTERS = 3
NOISES = 1 << 20
MOST_OBJECTS = 3
MOST_SPECKS = 2
HELD_OUT_ONE_IN = 3
# Combinations that no training image shows: each color with one shape, each shape in one color.
NOVEL_COMBINATIONS = frozenset(zip(COLORS, SHAPES, strict=True))

Cell = tuple[int, int]
CELLS: tuple[Cell, ...] = tuple(np.ndindex(GRID, GRID))


@dataclass(frozen=True, slots=True)
class Thing:
    """One object of a scene, or two or three equal ones.

    Attributes:
        shape: one of `SHAPES`.
        color: one of `COLORS`.
        size: one of `SIZES`.
        texture: one of `TEXTURES`.
        cell: grid row, 0 (top) to 2, and grid column, 0 (left) to 2.
        twins: cells of further equal objects: one for "two red circles", two for "three".
        jitter: vertical and horizontal index, each 0 to `JITTERS` - 1, of its half-pixel shift in the cell.
    """

    shape: str
    color: str
    size: str
    texture: str
    cell: Cell
    twins: tuple[Cell, ...] = ()
    jitter: tuple[int, int] = (1, 1)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells that it takes."""
        return (self.cell, *self.twins)

    @property
    def count(self) -> int:
        """Number of equal objects, 1 to 3."""
        return 1 + len(self.twins)


@dataclass(frozen=True, slots=True)
class Scene:
    """What an image shows. No two things share a shape, a color or a cell.

    Attributes:
        things: one to three things, at most `MOST_OBJECTS` objects in all; the first two of single objects share a
            row or a column, so that their relation has one name.
        background: one of `BACKGROUNDS`.
        specks: cells with a faint grey dot, a distractor that no caption mentions.
        noise: which pixel noise is added to the image, 0 to `NOISES` - 1.
    """

    things: tuple[Thing, ...]
    background: str
    specks: tuple[Cell, ...] = ()
    noise: int = 0

    @property
    def objects(self) -> int:
        """Number of objects, equal ones counted each."""
        return sum(thing.count for thing in self.things)

    def free_cells(self) -> list[Cell]:
        """Cells without object or speck, row by row."""
        taken = {cell for thing in self.things for cell in thing.cells} | set(self.specks)
        return [cell for cell in CELLS if cell not in taken]


class _Draws:
    """Numbers in 0 to 1, read one by one from one call: a call each would be too slow for thousands of scenes."""

    def __init__(self, generator: np.random.Generator, number: int) -> None:
        self._numbers = iter(generator.random(number).tolist())

    def below(self, limit: int) -> int:
        return int(next(self._numbers) * limit)

    def take(self, options: list):
        return options.pop(self.below(len(options)))


def draw_scene(
    generator: np.random.Generator, num_things: int, *, counted: bool = False, corner: bool = False
) -> Scene:
    """Draw a scene.

    Args:
        generator: source of randomness; the same state gives the same scene.
        num_things: number of different things, 1 to 3.
        counted: the first thing is there two or three times, so that there are at most `MOST_OBJECTS` objects.
        corner: of three things, the first shares a row with one of the others and a column with the other.

    Returns:
        A scene whose shapes, colors and cells are all different.

    Raises:
        ValueError: `num_things` is not 1, 2 or 3, or does not go with `counted` or `corner`.
    """
    if num_things not in (1, 2, 3):
        raise ValueError(f"a scene holds 1 to 3 things, not {num_things}.")
    if counted and num_things == MOST_OBJECTS or corner and num_things != MOST_OBJECTS:
        raise ValueError(f"a scene of {num_things} things with counted={counted}, corner={corner} does not exist.")
    draws = _Draws(generator, 16 + 6 * num_things)
    cells = _draw_corner(draws) if corner else _draw_line(draws)
    free = [cell for cell in CELLS if cell not in cells[:num_things]]
    twins = ()
    if counted:
        more = 1 if num_things == 2 else 1 + draws.below(2)
        twins = tuple(draws.take(free) for _ in range(more))
    shapes, colors = list(SHAPES), list(COLORS)
    things = tuple(
        Thing(
            draws.take(shapes),
            draws.take(colors),
            SIZES[draws.below(2)],
            TEXTURES[draws.below(2)],
            cells[index],
            () if index else twins,
            (draws.below(JITTERS), draws.below(JITTERS)),
        )
        for index in range(num_things)
    )
    specks = tuple(draws.take(free) for _ in range(draws.below(MOST_SPECKS + 1)))
    return Scene(things, draws.take(list(BACKGROUNDS)), specks, draws.below(NOISES))


def is_novel(things: Iterable[Thing]) -> bool:
    """Whether one of the things combines a color and a shape that no training image combines."""
    return any((thing.color, thing.shape) in NOVEL_COMBINATIONS for thing in things)


def is_held_out(scene: Scene) -> bool:
    """Whether a scene belongs to evaluation, the same scenes in every run and process.

    That is one scene in `HELD_OUT_ONE_IN`, and every scene with a novel combination. The rule reads what the scene
    shows and neither specks, jitter nor noise, so that no training image shows an evaluation scene with other noise.

    The order of the things does not matter.
    """
    if is_novel(scene.things):
        return True
    # A hash, not a list: the split needs no file, and a scene that nobody drew yet has its side. CRC32, because
    # Python's own hash differs from process to process.
    shown = sorted(
        f"{thing.shape} {thing.color} {thing.size} {thing.texture} {row} {column}"
        for thing in scene.things
        for row, column in thing.cells
    )
    return zlib.crc32(" ".join([scene.background, *shown]).encode()) % HELD_OUT_ONE_IN == 0


def _draw_line(draws: _Draws) -> list[Cell]:
    """Three cells, all different; the first two share a row or a column."""
    # A relation has a name only along a row or a column.
    lines = list(range(GRID))
    line, first, second = draws.below(GRID), draws.take(lines), draws.take(lines)
    cells = [(line, first), (line, second)]
    if draws.below(2):
        cells = [(column, row) for row, column in cells]
    free = [cell for cell in CELLS if cell not in cells]
    return [*cells, draws.take(free)]


def _draw_corner(draws: _Draws) -> list[Cell]:
    """Three cells: the first shares its row with one of the others and its column with the other."""
    rows, columns = list(range(GRID)), list(range(GRID))
    row, column = draws.take(rows), draws.take(columns)
    beside = [(row, draws.take(columns)), (draws.take(rows), column)]
    return [(row, column), draws.take(beside), beside[0]]
