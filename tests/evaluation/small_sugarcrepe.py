"""SugarCrepe's own files about the noise images that the tiny models train on."""

from __future__ import annotations

import json
from pathlib import Path

from hfcomp.evaluation.benchmarks.composition.sugarcrepe import SUBSETS
from tests import tiny


def write(root: Path, *, per_subset: int = 5, images: int = 20) -> Path:
    """A folder with `sugarcrepe` and `val2017`; the captions are those of `tiny.pairs`."""
    photographs = root / "val2017"
    photographs.mkdir(parents=True)
    (root / "sugarcrepe").mkdir()
    for index in range(images):
        tiny.image(index).save(photographs / f"{index}.png")
    captions = tiny.captions()
    for place, subset in enumerate(SUBSETS):
        rows = {}
        for item in range(per_subset):
            index = (place * per_subset + item) % images
            caption, negative = (captions[(index * 37 + shift) % len(captions)] for shift in (0, 11 + place))
            rows[str(item)] = {"filename": f"{index}.png", "caption": caption, "negative_caption": negative}
        (root / "sugarcrepe" / f"{subset}.json").write_text(json.dumps(rows))
    return root
