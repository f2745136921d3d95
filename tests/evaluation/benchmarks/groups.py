"""Groups of two images and two captions on disk, as sets in Winoground's schema have them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import numbered_texts, photos

TEXTS = numbered_texts("negative_captions")
"""Of as many groups, for `check_chance`."""


def true_of(groups: int) -> dict[int, list[str]]:
    """The captions that are true of the photos 2k and 2k + 1 of group k."""
    return {number: [f"caption {number}"] for number in range(2 * groups)}


def columns(groups: int, first: int = 0, **more: list[Any]) -> dict[str, list[Any]]:
    """Columns `image_0`, `image_1`, `caption_0` and `caption_1`, or from another number on, and `more`."""
    table: dict[str, list[Any]] = {}
    for side in range(2):
        table[f"image_{first + side}"] = [oracle.photo(2 * row + side) for row in range(groups)]
        table[f"caption_{first + side}"] = [f"caption {2 * row + side}" for row in range(groups)]
    return table | more


def examples(folder: Path, names: list[tuple[str, str]], ending: str = ".png", **more: list[Any]) -> Path:
    """`examples.jsonl` and `images/`; `names` are those of each group's images, without the ending."""
    plain = columns(len(names), **more)
    plain |= {f"image_{side}": [pair[side] for pair in names] for side in range(2)}
    files = {f"{name}{ending}": 2 * row + side for row, pair in enumerate(names) for side, name in enumerate(pair)}
    photos(folder / "images", files)
    lines = [dict(zip(plain, values, strict=True)) for values in zip(*plain.values(), strict=True)]
    (folder / "examples.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return folder


def pack(folder: Path) -> Path:
    """The same folder with its images in `images.zip`."""
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        archive.writestr("images/", "")
        for file in sorted((folder / "images").iterdir()):
            archive.write(file, f"images/{file.name}")
            file.unlink()
    (folder / "images").rmdir()
    return folder
