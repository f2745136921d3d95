"""A small source of photographs with captions, ratings of their words, and how ConcreteBatch is built of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hfcomp.factory.concretebatch.chain import ConcreteBatchOptions
from tests import tiny

CAPTIONS = [
    "A brown dog is sitting on a red couch.",
    "Two men riding horses in front of a big barn.",
    "A woman holding a blue umbrella under the bridge.",
    "Three wooden boats are parked near the green dock.",
    "A child eating pizza at a small table.",
]
WORDS = {
    **{"dog": 4.8, "couch": 4.9, "man": 4.7, "horse": 4.9, "barn": 4.9, "woman": 4.4, "umbrella": 4.9, "bridge": 4.9},
    **{"boat": 4.8, "dock": 4.7, "child": 4.7, "pizza": 4.9, "table": 4.8, "brown": 4.4, "red": 4.1, "big": 3.6},
    **{"blue": 3.7, "wooden": 4.5, "green": 4.0, "small": 3.1, "two": 3.9, "three": 3.8, "front": 3.7, "near": 2.9},
    **{"ride": 4.1, "hold": 3.6, "eat": 4.3, "park": 4.6, "sit": 4.4, "under": 3.4},
}


def ratings(path: Path) -> Path:
    """The file of ratings."""
    lines = ["Word\tConc.M\tDom_Pos", *(f"{word}\t{rating}\tNoun" for word, rating in WORDS.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def photos(folder: Path) -> Path:
    """Twelve images: row 4 allows no adaptation, the file of row 5 is no image, and row 7 has nothing to change."""
    folder.mkdir()
    lines = []
    for row in range(12):
        tiny.image(row).save(folder / f"{row}.png")
        facts = {"file_name": f"{row}.png", "caption": ["short", CAPTIONS[row % 5]], "image_id": str(row)}
        lines.append(facts | {"license": "cc-by-nd-2.0" if row == 4 else "cc-by-2.0"})
    lines[7]["caption"] = ["12"]
    (folder / "5.png").write_bytes(b"no image")
    (folder / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def options(source: Path, ratings: Path, pipeline: Path, output: Path, **changes: Any) -> ConcreteBatchOptions:
    """Of a build that needs no download.

    Args:
        source: of `photos`.
        ratings: of `ratings`.
        pipeline: that edits images.
        output: folder of the set.
        changes: other settings.
    """
    settings = {
        "source": str(source),
        "output": output,
        "concreteness_ratings": str(ratings),
        "parser": "rules",
        "writer": "substitute",
        "image_pipeline": str(pipeline),
        "image_size": 32,
        "image_batch_size": 2,
        "shard_size": 5,
    }
    return ConcreteBatchOptions(**settings | changes)
