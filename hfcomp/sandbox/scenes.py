"""Scenes of the sandbox: one to three colored shapes on a 3 x 3 grid, drawn at random."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

GRID = 3
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "star", "ring", "heart")
# Bright objects on dark backgrounds; with mixed brightness, a small model learns colors long before shapes.
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
# Combinations that no training image shows: one shape per color and one color per shape.
NOVEL_COMBINATIONS = frozenset(zip(COLORS, SHAPES, strict=True))

Cell = tuple[int, int]
CELLS: tuple[Cell, ...] = tuple(np.ndindex(GRID, GRID))


@dataclass(frozen=True, slots=True)
class Thing:
    """One object of a scene, or two or three equal objects.

    Attributes:
        shape: One of `SHAPES`.
        color: One of `COLORS`.
        size: One of `SIZES`.
        texture: One of `TEXTURES`.
        cell: Grid row, 0 (top) to 2, and grid column, 0 (left) to 2.
        twins: Cells of further equal objects: one for "two red circles", two for "three".
        jitter: Vertical and horizontal index of the half-pixel shift in the cell, each 0 to `JITTERS` - 1.
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
        """All occupied cells."""
        return (self.cell, *self.twins)

    @property
    def count(self) -> int:
        """Number of equal objects, 1 to 3."""
        return 1 + len(self.twins)


@dataclass(frozen=True, slots=True)
class Scene:
    """Content of an image. No two things share a shape, a color or a cell.

    Attributes:
        things: One to three things with at most `MOST_OBJECTS` objects in total. The first two single objects share a
            row or a column, so that their relation has one name.
        background: One of `BACKGROUNDS`.
        specks: Cells with a faint gray dot, a distractor that no caption mentions.
        noise: Index of the pixel noise added to the image, 0 to `NOISES` - 1.
    """

    things: tuple[Thing, ...]
    background: str
    specks: tuple[Cell, ...] = ()
    noise: int = 0

    @property
    def objects(self) -> int:
        """Number of objects; equal objects count individually."""
        return sum(thing.count for thing in self.things)

    def free_cells(self) -> list[Cell]:
        """Returns the cells without an object or speck, row by row."""
        taken = {cell for thing in self.things for cell in thing.cells} | set(self.specks)
        return [cell for cell in CELLS if cell not in taken]


class _Draws:
    """Random numbers from 0 to 1, drawn in one call because single calls are too slow for thousands of scenes."""

    def __init__(self, generator: np.random.Generator, number: int) -> None:
        self._numbers = iter(generator.random(number).tolist())

    def below(self, limit: int) -> int:
        return int(next(self._numbers) * limit)

    def take(self, options: list):
        return options.pop(self.below(len(options)))


def draw_scene(
    generator: np.random.Generator, num_things: int, *, counted: bool = False, corner: bool = False
) -> Scene:
    """Draws a scene.

    Args:
        generator: Random generator; the same state gives the same scene.
        num_things: Number of different things, 1 to 3.
        counted: Whether the first thing occurs two or three times, with at most `MOST_OBJECTS` objects in total.
        corner: Whether the first of three things shares a row with one of the others and a column with the other.

    Returns:
        A scene whose shapes, colors and cells are all different.

    Raises:
        ValueError: If `num_things` is not 1, 2 or 3, or is incompatible with `counted` or `corner`.
    """
    if num_things not in (1, 2, 3):
        raise ValueError(f"num_things: found {num_things}, expected 1 to 3.")
    if counted and num_things == MOST_OBJECTS or corner and num_things != MOST_OBJECTS:
        raise ValueError(f"no scene has {num_things} things with counted={counted} and corner={corner}.")
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
    """Whether a thing has a combination of color and shape that no training image shows."""
    return any((thing.color, thing.shape) in NOVEL_COMBINATIONS for thing in things)


def is_held_out(scene: Scene) -> bool:
    """Whether a scene belongs to evaluation; the same scenes do in every run and process.

    These are one in `HELD_OUT_ONE_IN` scenes, and every scene with a novel combination. The rule ignores specks,
    jitter and noise, so that no training image shows an evaluation scene with different noise.

    The order of the things does not matter.
    """
    if is_novel(scene.things):
        return True
    # A hash needs no file, and also assigns scenes that were never drawn before. Use CRC32, because Python's own hash
    # differs from process to process.
    contents = sorted(
        f"{thing.shape} {thing.color} {thing.size} {thing.texture} {row} {column}"
        for thing in scene.things
        for row, column in thing.cells
    )
    return zlib.crc32(" ".join([scene.background, *contents]).encode()) % HELD_OUT_ONE_IN == 0


def _draw_line(draws: _Draws) -> list[Cell]:
    """Draws three different cells, of which the first two share a row or a column."""
    # A relation only has a name along a row or a column.
    lines = list(range(GRID))
    line, first, second = draws.below(GRID), draws.take(lines), draws.take(lines)
    cells = [(line, first), (line, second)]
    if draws.below(2):
        cells = [(column, row) for row, column in cells]
    free = [cell for cell in CELLS if cell not in cells]
    return [*cells, draws.take(free)]


def _draw_corner(draws: _Draws) -> list[Cell]:
    """Draws three cells, of which the first shares its row with one of the others and its column with the other."""
    rows, columns = list(range(GRID)), list(range(GRID))
    row, column = draws.take(rows), draws.take(columns)
    neighbors = [(row, draws.take(columns)), (draws.take(rows), column)]
    return [(row, column), draws.take(neighbors), neighbors[0]]
