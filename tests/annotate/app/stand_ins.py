"""Models that stand in for CLIPSeg and Stable Diffusion, and a project of exact scenes of the sandbox."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from hfcomp.annotate.service import AnnotationService
from hfcomp.data.annotations.entries import Item
from hfcomp.data.annotations.project import Project
from hfcomp.factory.images.editor import Edit

COLORS = {"red": (220, 40, 40), "blue": (40, 80, 220), "green": (40, 170, 70), "yellow": (240, 210, 40)}
WIDTH, HEIGHT = 320, 240
BOX = (90, 70, 190, 170)


def picture(color: str, number: int = 0) -> Image.Image:
    """A square of a color on a grey gradient, another one for each number."""
    across, down = np.meshgrid(np.linspace(60, 160, WIDTH), np.linspace(0, 60, HEIGHT))
    grey = (across + down + number % 20).astype(np.uint8)
    image = Image.fromarray(np.stack([grey] * 3, axis=-1))
    ImageDraw.Draw(image).rectangle(BOX, fill=COLORS[color])
    return image


class ExactSegmenter:
    """Finds the square, whatever it is asked for; nothing if asked for "nothing"."""

    def probability_map(self, image: Image.Image, prompt: str) -> np.ndarray:
        """0.9 in the square and 0.5 in a margin of 10 pixels."""
        probabilities = np.zeros((image.height, image.width), dtype=np.float32)
        if prompt == "nothing":
            return probabilities
        if prompt == "everything":
            return probabilities + 1
        left, top, right, bottom = (round(side * image.width / WIDTH) for side in BOX)
        probabilities[top - 10 : bottom + 11, left - 10 : right + 11] = 0.5
        probabilities[top : bottom + 1, left : right + 1] = 0.9
        return probabilities


class ExactPainter:
    """Paints the mask in the color that the prompt names, a shade of it for each seed.

    Attributes:
        failures: how many of the next calls raise.
        painted: number of calls.
        released: work waits until it is set.
    """

    def __init__(self) -> None:
        self.failures = self.painted = 0
        self.released = threading.Event()
        self.released.set()

    def paint(self, image: Image.Image, mask: np.ndarray, prompt: str, seeds: Sequence[int]) -> list[Edit]:
        """An edit for each seed."""
        self.painted += 1
        self.released.wait(30)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the device went away <b>")
        color = next((value for name, value in COLORS.items() if name in prompt), (128, 0, 128))
        edits = []
        for seed in seeds:
            pixels = np.asarray(image).copy()
            pixels[mask] = np.clip(np.array(color) - 12 * (seed % 6), 0, 255)
            edits.append(Edit(Image.fromarray(pixels), is_blanked=False))
        return edits


def project(folder: Path, number: int, **settings) -> Project:
    """A project of squares."""
    made = Project(folder, **settings)
    files = {color: made.save(picture(color)) for color in COLORS}

    def item(index: int) -> Item:
        color = list(COLORS)[index % len(COLORS)]
        captions = (
            f"A {color} box on a grey wall.",
            f"The box is {color} & big <i>here</i>.",
            f"There is a {color} box.",
        )
        facts = {"image_id": f"{index}", "license": "CC BY 4.0"}
        return Item(f"{index}/color", files[color], "color", captions, (color,) * 3, facts)

    made.decisions.add_items(item(index) for index in range(number))
    return made


def service(project: Project, painter: ExactPainter | None = None, **settings) -> AnnotationService:
    """The service with the stand-ins."""
    make: Callable[[], ExactPainter] = lambda: painter or ExactPainter()  # noqa: E731
    return AnnotationService(project, ExactSegmenter, make, **settings)
