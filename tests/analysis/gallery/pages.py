"""Small sets for galleries, their pages, and what a page holds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Image, List, Value
from PIL import Image as Pillow

from hfcomp.analysis.gallery.options import GalleryOptions
from hfcomp.analysis.gallery.page import write_gallery
from tests import tiny

HOSTILE = '</script><img src=x onerror="alert(1)"><!-- ${title}'
FEATURES = Features(
    {
        "image": Image(decode=False),
        "caption": Value("string"),
        "positive_captions": List(Value("string")),
        "negative_captions": List(Value("string")),
        "negative_kinds": List(Value("string")),
        "negative_image": Image(decode=False),
        "mask": Image(decode=False),
        "image_id": Value("string"),
        "group": Value("string"),
    }
)


def encode(picture: Pillow.Image) -> dict[str, Any]:
    return Image().encode_example(picture)


def mask() -> dict[str, Any]:
    area = Pillow.new("L", (tiny.IMAGE_SIZE, tiny.IMAGE_SIZE))
    area.paste(255, (8, 8, 20, 20))
    return encode(area)


def dataset(number: int = 8, **changes: dict[int, Any]) -> Dataset:
    """Rows in the column contract, every third one without a negative image.

    Args:
        number: of rows.
        changes: by column the values of some rows, as `caption={3: "another"}`.
    """
    captions = tiny.captions()
    rows = []
    for row in range(number):
        caption = captions[37 * row % len(captions)]
        color = caption.split()[1]
        has_image = row % 3 != 2
        rows.append(
            {
                "image": encode(tiny.image(row)),
                "caption": caption,
                "positive_captions": [f"there is {caption}"],
                "negative_captions": [caption.replace(color, "black" if color != "black" else "white"), ""],
                "negative_kinds": [("swap_att", "replace_obj")[row % 2], "other"],
                "negative_image": encode(tiny.image(100 + row)) if has_image else None,
                "mask": mask() if has_image else None,
                "image_id": f"tiny-{row}",
                "group": f"group {row % 2}",
            }
        )
    for name, values in changes.items():
        for row, value in values.items():
            rows[row][name] = value
    return Dataset.from_list(rows, features=FEATURES)


def save_rows(folder: Path, rows: Dataset | None = None, name: str = "set") -> str:
    (dataset() if rows is None else rows).save_to_disk(str(folder / name))
    return str(folder / name)


def page(source: str, folder: Path, **options: Any) -> Path:
    """The page of a set."""
    settings = {"device": "cpu", "no_cache": True, "overwrite": True} | options
    return write_gallery(source, folder / "gallery ä.html", GalleryOptions(**settings)).path


def held(path: Path, name: str) -> Any:
    """Returns the data that a page holds under a name: `about`, `data` or `pictures`."""
    text = path.read_text("utf-8")
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', text)[1])
