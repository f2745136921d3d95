"""A random crop of each training image, drawn in every epoch."""

from __future__ import annotations

import math
import random
from typing import Any

from hfcomp.data.draws.epochs import DrawnRows
from hfcomp.data.loading import TrainingRows

CROP_BOX = "crop_box"
"""In a row: the part that its images are cropped to, `(left, top, right, bottom)` as shares of width and height."""
ASPECT = 4 / 3
"""Width to height of a box is at most this, and height to width."""


class DrawnCrops(DrawnRows):
    """Training rows with a `crop_box`, drawn per row and epoch; see `draw_box`.

    The box is the row's: its image and its negative image are cropped alike, so that a pair that differs in one place
    still does. A draw depends on `seed`, epoch and row only.

    Args:
        rows: the training rows.
        seed: of the draws.
        smallest: share of the area that a box keeps at least, above 0 and at most 1.
    """

    what = "crops"

    def __init__(self, rows: TrainingRows, *, seed: int, smallest: float) -> None:
        super().__init__(rows, seed=seed)
        self.smallest = smallest

    def draw(self, row: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
        """The row with its box."""
        return {**row, CROP_BOX: draw_box(self.smallest, random_numbers)}


def without_crops(rows: Any) -> Any:
    """Rows whose images are whole, as evaluation needs them: those below `DrawnCrops`, any others as they are."""
    return rows.rows if isinstance(rows, DrawnCrops) else rows


def draw_box(smallest: float, random_numbers: random.Random) -> tuple[float, float, float, float]:
    """A random part of an image.

    Its area is uniform in `[smallest, 1]`, its aspect ratio log-uniform in `[3/4, 4/3]`, its place uniform: the
    distribution of torchvision's `RandomResizedCrop`, which open_clip trains with at `scale=(0.9, 1.0)`. Two things
    differ. torchvision draws area and ratio again if the box does not fit into the image, which favours small areas;
    here the ratio is one of those that fit. And open_clip crops the photograph, hfcomp the model's square of it.

    Args:
        smallest: share of the area, above 0 and at most 1.
        random_numbers: of the draw.

    Returns:
        `(left, top, right, bottom)` as shares of width and height, 0 to 1.
    """
    area = random_numbers.uniform(smallest, 1)
    bound = min(math.log(ASPECT), -math.log(area))  # the box of a larger ratio is wider than the image
    ratio = math.exp(random_numbers.uniform(-bound, bound))
    width, height = (min(1.0, math.sqrt(area * part)) for part in (ratio, 1 / ratio))
    left, top = (random_numbers.uniform(0, 1 - side) for side in (width, height))
    return left, top, left + width, top + height
