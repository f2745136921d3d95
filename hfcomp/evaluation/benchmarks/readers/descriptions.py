"""Images with long descriptions, of which single sentences or one whole text are the captions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.entries import entries, line_entries, object_in

if TYPE_CHECKING:
    from datasets import Dataset

_SHORTEST = 3
"""Characters. FLAIR's file of ImageInWords lacks shorter pieces, such as the end of a quotation."""
IMAGEINWORDS_PARTS = {
    "DOCCI_Test": ("image", "docci/{}.jpg"),
    "IIW-400": ("image/key", "docci_aar/{}.jpg"),
    "DCI_Test": ("image", "dci/{}"),
}
"""By part of ImageInWords: the field with the image's name, and the image's folder."""
Captions = Callable[[str], list[str]]


def sentences(description: str) -> list[str]:
    """A description cut at each full stop and line, as FLAIR does (Xiao et al. 2025, arXiv:2412.03561).

    Gives exactly the 6,204 texts of FLAIR's file of ImageInWords. "3.5" and "St. Paul" are cut too.
    """
    return [part for part in _pieces(description) if len(part) >= _SHORTEST]


def whole(description: str) -> list[str]:
    """A description as it is written."""
    return [description.strip()]


def rejoined(description: str) -> list[str]:
    """A whole description, its pieces between full stops and lines joined by ". ", as LoTLIP and FLAIR read it."""
    return [". ".join(filter(None, _pieces(description)))]


def _pieces(description: str) -> list[str]:
    return [part.strip() for part in re.split(r"\n|</s>|[.]", description)]


def in_captions(rows: Dataset, *, captions: Captions) -> Dataset:
    """Descriptions in `captions` as lists of captions."""
    lists = [captions(text) for text in rows["captions"]]
    return rows.remove_columns("captions").add_column("captions", lists)


def docci(folder: Path, *, captions: Captions) -> list[dict[str, Any]]:
    """The test images of DOCCI's table."""
    keys = ("example_id", "split", "image_file", "description")
    return [
        {
            "item": row["example_id"],
            "image": str(folder / "images" / row["image_file"]),
            "captions": captions(row["description"]),
        }
        for _, row in line_entries(folder / "docci_descriptions.jsonlines", keys)
        if row["split"] == "test"
    ]


def imageinwords(folder: Path, *, parts: Sequence[str], captions: Captions) -> list[dict[str, Any]]:
    """The images of some parts of ImageInWords, with what people wrote."""
    found = []
    for part in parts:
        field, place = IMAGEINWORDS_PARTS[part]
        for _, row in line_entries(folder / part / "data.jsonl", (field, "IIW")):
            name = place.format(row[field])
            texts = captions(row["IIW"])
            found.append({"item": name, "image": str(folder / name), "image_id": name, "captions": texts})
    return found


def dci(folder: Path, *, captions: Captions) -> list[dict[str, Any]]:
    """The images of all three splits of DCI, with the short caption and the long one as one description."""
    splits: Mapping[str, Sequence[str]] = object_in(folder / "splits.json", ())
    found = []
    for name in (name for names in splits.values() for name in names):
        entry = object_in(folder / "annotations" / name, ("image", "short_caption", "extra_caption"))
        texts = captions(f"{entry['short_caption']}\n{entry['extra_caption']}")
        found.append({"item": name, "image": str(folder / "photos" / entry["image"]), "captions": texts})
    return found


def annotated(folder: Path, file: str, images: str = "", only: str = "") -> list[dict[str, Any]]:
    """Images and sentences of one of FLAIR's `test_annotations.json`.

    Args:
        folder: holds the file and the images.
        file: from there.
        images: from there.
        only: how the names of the wanted images begin.
    """
    captions: dict[str, list[str]] = defaultdict(list)
    for _, one in entries(folder / file, ("image", "caption"), inside="annotations"):
        if one["image"].startswith(only):
            captions[one["image"]].append(one["caption"])
    return [
        {"item": name, "image": str(folder / images / name), "image_id": name, "captions": texts}
        for name, texts in captions.items()
    ]
