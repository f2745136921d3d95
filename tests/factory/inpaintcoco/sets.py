"""Small challenge sets: a copy of the published one in its layout, and annotation projects."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value
from datasets import Image as ImageFeature
from PIL import Image

from hfcomp.data.annotations.entries import Edit, Item, Quality
from hfcomp.data.annotations.masks import Mask, compose, mask_image
from hfcomp.data.annotations.project import Project

SIZE = (48, 40)
ALLOWED = "Attribution License"
CONCEPTS = ("object", "color", "size")
_TEXT, _NUMBER = Value("string"), Value("int64")
# The features of the set's first commit (c56e319 on the Hub), as its card lists them; of `inpaint_details` the card's
# first field is known, and two that programs of others read.
PUBLISHED = Features(
    {
        "concept": _TEXT,
        "coco_caption": _TEXT,
        "coco_image": ImageFeature(),
        "inpaint_caption": _TEXT,
        "inpaint_image": ImageFeature(),
        "mask": ImageFeature(),
        "worker": _TEXT,
        "coco_details": {
            "captions": List(_TEXT),
            "coco_url": _TEXT,
            "date_captured": _TEXT,
            "flickr_url": _TEXT,
            "height": _NUMBER,
            "id": _NUMBER,
            "image_license": _TEXT,
            "text_license": _TEXT,
            "width": _NUMBER,
        },
        "inpaint_details": {"duration": _NUMBER, "guidance_scale": Value("float64"), "num_inference_steps": _NUMBER},
    }
)


def photo(number: int, size: tuple[int, int] = SIZE) -> Image.Image:
    """Another picture for each number."""
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def mask(size: tuple[int, int] = SIZE) -> Mask:
    """A box inside the image."""
    pixels = np.zeros((size[1], size[0]), dtype=bool)
    pixels[10:24, 12:30] = True
    return pixels


def encode(image: Image.Image, kind: str = "PNG") -> bytes:
    """The bytes of a file."""
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def row(number: int, **changes: Any) -> dict[str, Any]:
    """A row of the published set; the edited image is another one altogether, as a diffusion pipeline paints it."""
    columns = {
        "concept": CONCEPTS[number % 3],
        "coco_caption": f"A red dog number {number}. ",
        "coco_image": photo(number),
        "inpaint_caption": f"A blue dog number {number}.",
        "inpaint_image": photo(1000 + number),
        "mask": mask_image(mask()),
        "worker": f"Person {number % 2}",
        "coco_details": {
            **dict.fromkeys(PUBLISHED["coco_details"]),
            "captions": [f"A red dog number {number}."],
            "id": 139 + number // 2,
            "image_license": ALLOWED,
            "text_license": "CC BY 4.0",
        },
        "inpaint_details": {"duration": 30, "guidance_scale": 7.5, "num_inference_steps": 50},
    } | changes
    images = {
        name: None if columns[name] is None else {"bytes": encode(columns[name]), "path": f"{number}.png"}
        for name in ("coco_image", "inpaint_image", "mask")
    }
    return columns | images


def publish(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A copy of the published set: two Parquet files of one split, and a card."""
    (folder / "data").mkdir(parents=True)
    half = (len(rows) + 1) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        whole = Dataset.from_list(list(part), features=PUBLISHED)
        whole.to_parquet(folder / f"data/test-{number:05d}-of-00002.parquet")
    card = "configs:\n- config_name: default\n  data_files:\n  - split: test\n    path: data/test-*"
    (folder / "README.md").write_text(f"---\n{card}\n---\n# InpaintCOCO\n")
    return folder


def item(project: Project, number: int, **changes: Any) -> Item:
    """A candidate, whose image is a JPEG as those of COCO."""
    file = project.save_bytes(encode(photo(number), "JPEG"), "jpg")
    concept = CONCEPTS[number % 3]
    facts = {"image_id": str(139 + number // 2), "license": ALLOWED, "source": "coco"}
    columns = {
        "id": f"{number}/{concept}",
        "image": file,
        "concept": concept,
        "captions": (f"A red dog number {number}.",),
        "keywords": ("red",),
        "facts": facts,
    }
    return Item(**columns | changes)


def edit(project: Project, entry: Item, number: int, quality: Quality = "very good", **changes: Any) -> Edit:
    """An edit as the page makes it: another picture in a box."""
    original = project.read(entry.image)
    columns = {
        "image": project.save(compose(original, photo(1000 + number), mask())),
        "mask": project.save(mask_image(mask())),
        "caption": f"A blue dog number {number}.",
        "original": entry.captions[0],
        "mask_prompt": "red dog",
        "threshold": 0.4,
        "enlarge": (2, 3),
        "is_corrected": number % 2 == 1,
        "inpaint_prompt": "a blue dog",
        "seed": 7 + number,
        "quality": quality,
    }
    return Edit(**columns | changes)


def project(folder: Path, number: int = 6, edits: dict[int, dict[str, Any]] | None = None) -> Path:
    """A project of which all items are accepted.

    Args:
        folder: of the project.
        number: of items; every third is rated "okay" by its reviewer.
        edits: fields of edits that are others, by the number of the item.
    """
    made = Project(folder)
    for place in range(number):
        entry = item(made, place)
        made.decisions.add_items([entry])
        annotator, reviewer = ("Ann Meyer", "Bo Larsen") if place % 2 else ("Bo Larsen", "Ann Meyer")
        made.decisions.submit(annotator, entry.id, edit(made, entry, place, **(edits or {}).get(place, {})))
        made.decisions.accept(reviewer, entry.id, "okay" if place % 3 == 2 else "very good")
    made.decisions.close()
    return folder
