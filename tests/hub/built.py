"""Small built sets with everything that a published one has: images, negatives, their words, licenses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Image, Value

from hfcomp.data.columns import NEGATIVE_FEATURES
from hfcomp.factory.cards import Source, write_card
from hfcomp.factory.kinds import NEGATIVES
from hfcomp.factory.runner import Batch, Build, Stage, run_stages
from tests.factory.builds import png

MADE = ("negative_captions", "negative_kinds", "negative_keywords", "negative_categories", "negative_rated_words")
ALLOWED = "Attribution License"


def source(rows: int = 7, licenses: list[str | None] | None = None) -> Dataset:
    """Photographs of dogs; without licenses the column is not there."""
    columns: dict[str, Any] = {
        "image": [{"bytes": png(row), "path": f"{row}.png"} for row in range(rows)],
        "caption": [f"{row} dogs on a large table" for row in range(rows)],
        "image_id": list(map(str, range(rows))),
    }
    features = Features({"image": Image(), "caption": Value("string"), "image_id": Value("string")})
    if licenses is not None:
        columns["license"], features["license"] = licenses, Value("string")
    return Dataset.from_dict(columns, features=features)


def make_pairs(*, word: str, number: int = 0):
    """A stage: `word` stands where the dogs were, and the negative image is another grey."""

    def pairs(batch: Batch) -> Batch:
        rows = len(batch["caption"])
        made = {
            "negative_captions": [[text.replace("dogs", word)] for text in batch["caption"]],
            "negative_kinds": [["replace_obj"]] * rows,
            "negative_keywords": [["dogs"]] * rows,
            "negative_categories": [["object"]] * rows,
            "negative_rated_words": [["dog"]] * rows,
            "negative_image": [{"bytes": png(200 + number), "path": None}] * rows,
        }
        return batch | made

    return pairs


def make_rated(**settings):
    """Calls `make_pairs` with ratings in the set, which no set may have."""
    pairs = make_pairs(**settings)
    return lambda batch: pairs(batch) | {"negative_concreteness": [[4.9]] * len(batch["caption"])}


def write_build(
    folder: Path, *, word: str = "cats", rows: int = 7, licenses: Any = ALLOWED, rated: bool = False, card: Any = None
) -> Path:
    """A finished build of shards of three rows, with its card.

    Args:
        folder: of the build.
        word: of its negatives.
        rows: of the source.
        licenses: of the rows: one for all, a list, or None for no column.
        rated: whether the column of ratings is filled.
        card: the license of the source's card.
    """
    licenses = [licenses] * rows if isinstance(licenses, str) else licenses
    dataset = source(rows, licenses)
    features = Features({**dataset.features, **{name: NEGATIVE_FEATURES[name] for name in MADE}})
    features["negative_image"] = Image()
    if rated:
        features["negative_concreteness"] = NEGATIVE_FEATURES["negative_concreteness"]
    stages = [Stage("pairs", make_rated if rated else make_pairs, {"word": word})]
    build: Build = run_stages(dataset, stages, folder, features=features, rows_per_shard=3)
    stated = Source("coco_folder", card, licenses is not None)
    command = "hfcomp build negatives --source coco_folder"
    write_card(folder, {"default": [build.manifest]}, stated, NEGATIVES.card, command)
    return folder
