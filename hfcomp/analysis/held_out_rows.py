"""Held-out rows with negatives, to compare embeddings on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import islice
from typing import Any

from datasets import Dataset

from hfcomp.data.loading import undecoded
from hfcomp.evaluation.content import image_key


@dataclass(frozen=True)
class HeldOutRows:
    """Rows with an image, a caption and at least one negative each.

    Attributes:
        images: `[n]`, undecoded.
        names: `[n]`, of each row's image: its `image_id`, else its content.
        captions: `[n]`.
        negatives: `[n]` lists of one or more, without the empty ones.
        source: what they are, for the report.
        digest: identifies these rows.
    """

    images: list[Any]
    names: list[str]
    captions: list[str]
    negatives: list[list[str]]
    source: str
    digest: str

    def __len__(self) -> int:
        return len(self.captions)


def select_rows(rows: Dataset, wanted: int, source: str) -> HeldOutRows:
    """The first rows with an image, a caption and a negative caption.

    Args:
        rows: with the columns `image`, `caption` and `negative_captions`, and `image_id` where images have names.
        wanted: number of rows, at most.
        source: what they are, for the report.

    Raises:
        ValueError: when no row has all three, or for an image that cannot be read.
    """
    captions = rows["caption"][:]
    negatives = [[text for text in texts or [] if text and text.strip()] for texts in rows["negative_captions"]]
    usable = [row for row, text in enumerate(captions) if text and text.strip() and negatives[row]]
    cells = undecoded(rows)["image"]
    keys = ((row, image_key(cells[row], f"embeddings: column 'image', row {row}")) for row in usable)
    chosen = dict(islice(((row, key) for row, key in keys if key is not None), wanted))
    if not chosen:
        raise ValueError(
            f"embeddings: none of the {len(rows):,} rows of {source} has an image, a caption and a negative caption. "
            "Choose another evaluation_split or evaluation_dataset, or leave embeddings out of the sweep's file."
        )
    named = rows["image_id"] if "image_id" in rows.column_names else dict.fromkeys(chosen)
    # rows that share an image are one cluster of the bootstrap, also where the set does not name its images
    names = [f"image {key.hex()}" if named[row] is None else str(named[row]) for row, key in chosen.items()]
    captions, own = [captions[row] for row in chosen], [negatives[row] for row in chosen]
    digest = hashlib.sha256(repr((names, captions, own)).encode() + b"".join(chosen.values()))
    return HeldOutRows([cells[row] for row in chosen], names, captions, own, source, digest.hexdigest()[:16])
