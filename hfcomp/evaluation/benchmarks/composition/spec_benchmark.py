"""SPEC (Peng et al. 2024): generated images that differ in the size, position, existence or number of one thing."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from os.path import normpath
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.files import ZippedFiles, entries, member
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.protocols.group_match import ImageChoice
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

KEYS = ("query", "keys", "label")


def caption_rows(folder: Path, subsets: Sequence[str], file: str, archive: str | None = None) -> list[dict[str, Any]]:
    """Reads images, each with texts to choose from; `archive` is a zip archive with the subsets, if any."""
    return [
        {
            "subset": subset,
            "item": item,
            "image": normpath(prefix + question["query"]),
            "caption": question["keys"][question["label"]],
            "negative_captions": [text for place, text in enumerate(question["keys"]) if place != question["label"]],
        }
        for subset, prefix, item, question in _questions(folder, subsets, file, archive)
    ]


def image_rows(folder: Path, subsets: Sequence[str], file: str, archive: str | None = None) -> list[dict[str, Any]]:
    """Reads texts, each with images to choose from: one row per text, and one per image without a text.

    Questions with the same images form one set, and one cluster in intervals.
    """
    items: list[dict[str, Any]] = []
    sets: dict[tuple[str, ...], str] = {}
    shown: dict[str, dict[str, None]] = {}
    for subset, prefix, item, question in _questions(folder, subsets, file, archive):
        images = tuple(normpath(prefix + name) for name in question["keys"])
        name = sets.setdefault(images, f"{subset}/{item}")
        # The remaining images have no text of their own, but they need a row because protocols read images from rows.
        shown.setdefault(name, dict.fromkeys(images)).pop(images[question["label"]], None)
        row = {"subset": subset, "item": item, "candidates": name, "image_id": name}
        items.append({**row, "image": images[question["label"]], "caption": question["query"]})
    for name, rest in shown.items():
        subset = name.partition("/")[0]
        for place, image in enumerate(rest):
            row = {"subset": subset, "item": f"{name}, candidate {place}", "candidates": name, "image_id": name}
            items.append({**row, "image": image, "caption": ""})
    return items


def query_files(
    read: Callable[..., list[dict[str, Any]]], subsets: Sequence[str], file: str, archive: str, repo: str, commit: str
) -> tuple[RawFiles, RawFiles]:
    """Returns two forms: one folder per subset, and a zip archive with all of them, as on the Hub."""
    read = partial(read, subsets=subsets, file=file)
    layout = f"{archive} of {repo} on the Hub"
    source = {"archive": archive, "repo": repo, "revision": commit}
    return (
        RawFiles(tuple(subsets), read, f"{layout}, unpacked"),
        ZippedFiles((archive,), partial(read, archive=archive), layout, **source),
    )


def _questions(
    folder: Path, subsets: Sequence[str], file: str, archive: str | None
) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Yields each question's subset, the prefix of its image paths, its position in the file, and the question."""
    root: Path | zipfile.Path = folder
    start = f"{folder}/"
    if archive is not None:
        # Relative to the first file, because an archive may have one folder around all others.
        root = member(folder / archive, f"{subsets[0]}/{file}").parent.parent
        start = root.at
    for subset in subsets:
        place = root / subset / file
        for item, question in entries(place, KEYS):
            if not isinstance(question["label"], int) or not 0 <= question["label"] < len(question["keys"]):
                raise ValueError(
                    f"{place}, entry {item!r}: found the label {question['label']!r}, expected the position of the "
                    f"right key, 0 to {len(question['keys']) - 1}."
                )
            yield subset, f"{start}{subset}/", item, question


REPO, REVISION = "wjpoom/SPEC", "694dfdc74fe72acdc932fd5fc919b6b0268f7a07"
SUBSETS = ("absolute_size", "relative_size", "absolute_spatial", "relative_spatial", "existence", "count")
TASKS = (
    ("captions", "image-to-text", "image2text.json", caption_rows, CaptionChoice()),
    ("images", "text-to-image", "text2image.json", image_rows, ImageChoice()),
)

SPEC = tuple(
    Benchmark(
        name=f"spec_{name}",
        title=f"SPEC {direction}",
        suite=COMPOSITIONAL,
        protocol=protocol,
        data=query_files(read, SUBSETS, file, "data.zip", REPO, REVISION),
        averages=(Average("mean of 6 subsets", tuple((subset,) for subset in SUBSETS)),),
        paper="Peng et al. 2024, arXiv:2312.00081",
        license="not stated",
        obtain=f"Downloaded automatically from the Hub ({REPO}, 1.6 GB).",
        folder="spec",
    )
    for name, direction, file, read, protocol in TASKS
)
