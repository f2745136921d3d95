"""The rows of a set by concept: how many there are, some captions, and small pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tqdm.auto import tqdm

from hfcomp.data.images import decode_image
from hfcomp.data.loading import load_training_set, undecoded
from hfcomp.reporting.pages.page import thumbnail

SIDE = 96
"""Of a thumbnail: pixels of its longer side."""
CAPTIONS = 4
"""Generalised captions that are shown of a concept."""


@dataclass
class Members:
    """The rows of one concept.

    Attributes:
        rows: of each split by image.
        captions: the first generalised captions.
        pictures: data URIs.
    """

    rows: dict[str, int] = field(default_factory=lambda: {"train": 0, "test": 0})
    captions: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SetMembers:
    """The rows of a set.

    Attributes:
        concepts: by name.
        pairs: images with each of their captions.
        undecoded: images that cannot be decoded.
    """

    concepts: Mapping[str, Members]
    pairs: int
    undecoded: int


def read_members(folder: Path, *, thumbnails: int, progress: bool = False) -> SetMembers:
    """Reads the parts of a set of `hfcomp build magic`, each file verified.

    Args:
        folder: of the set.
        thumbnails: pictures of each concept, the first ones.
        progress: whether to show a bar.

    Raises:
        ValueError: for a set that is not finished or damaged.
    """
    found: dict[str, Members] = {}
    pairs = wrong = 0
    for split in ("train", "test"):
        try:
            rows = undecoded(load_training_set(str(folder), split=split, config="captions"))
        except ValueError as error:
            if "has no rows" in str(error):  # of a split of a small set
                continue
            raise
        pairs += sum(1 if isinstance(one, str) else len(one or ()) for one in rows["caption"][:])
        texts = zip(rows["group"][:], rows["generalised_caption"][:], strict=True)
        for row, (name, caption) in enumerate(tqdm(texts, desc=split, total=len(rows), disable=not progress)):
            own = found.setdefault(name, Members())
            own.rows[split] += 1
            if len(own.captions) < CAPTIONS and caption not in own.captions:
                own.captions.append(caption)
            if len(own.pictures) < thumbnails:
                try:
                    own.pictures.append(thumbnail(decode_image(rows[row]["image"]), SIDE).uri)
                except (ValueError, OSError):
                    wrong += 1
    return SetMembers(found, pairs, wrong)
