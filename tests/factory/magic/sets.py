"""A small source of captioned images, a taxonomy for it, and sets that are built of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Image, List, Value

from hfcomp.factory.build import BuiltSet, build_set
from hfcomp.factory.magic.options import MagicOptions
from tests.factory.builds import png

WORDS = ("dog", "cat", "cake", "pizza")
"""Of the captions, in turn; each is a concept."""
TAXONOMY = """
living thing:
  animal:
    pet:
      dog: [puppy]
      cat: [kitten]
artifact:
  food:
    dessert: {cake: [cupcake]}
    meal: {pizza: [slice]}
"""
PER_CONCEPT = 10
ALLOWED = "Attribution License"


def source(folder: Path, *, per_concept: int = PER_CONCEPT, **changes: dict[int, Any]) -> Path:
    """Images with two captions each, on disk.

    Args:
        folder: of the source; the taxonomy is beside it.
        per_concept: images of each concept.
        changes: by column the values of some rows, as `caption={3: ["nothing"]}`.
    """
    rows = len(WORDS) * per_concept
    words = [WORDS[row % len(WORDS)] for row in range(rows)]
    columns: dict[str, list[Any]] = {
        "image": [{"bytes": png(row), "path": f"{row}.png"} for row in range(rows)],
        "caption": [[f"A red {word} on the table", f"the {word} number {row}"] for row, word in enumerate(words)],
        "image_id": list(range(100, 100 + rows)),
        "license": [ALLOWED] * rows,
    }
    for name, values in changes.items():
        for row, value in values.items():
            columns[name][row] = value
    features = Features(
        {"image": Image(), "caption": List(Value("string")), "image_id": Value("int64"), "license": Value("string")}
    )
    Dataset.from_dict(columns, features=features).save_to_disk(str(folder))
    (folder.parent / "taxonomy.yaml").write_text(TAXONOMY)
    return folder


def options(place: Path, output: Path, **settings: Any) -> MagicOptions:
    """Of a build without a model in which like concepts are hard negatives."""
    given = {
        "writer": "taxonomy",
        "taxonomy": str(place.parent / "taxonomy.yaml"),
        "encoder": "captions",
        "negative_similarity": -1.0,
        "shared_levels": 3,
        "shard_size": 7,
        **settings,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return MagicOptions(source=str(place), output=output, **given)


def build_magic(folder: Path, **settings: Any) -> BuiltSet:
    """A set of the source in `folder / "source"`, which is made where it is missing, in `folder / "magic"`."""
    place = folder / "source"
    if not place.is_dir():
        source(place)
    return build_set(options(place, folder / "magic", **settings), log=lambda _: None)
