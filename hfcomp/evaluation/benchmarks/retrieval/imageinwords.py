"""ImageInWords (Garg et al. 2024): retrieval by single sentences of very long descriptions that people wrote."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.entries import line_entries
from hfcomp.evaluation.benchmarks.retrieval.docci import annotated, sentences
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark

FIELDS = {
    "DOCCI_Test": ("image", "docci/{}.jpg"),
    "IIW-400": ("image/key", "docci_aar/{}.jpg"),
    "DCI_Test": ("image", "dci/{}"),
}
"""By part: the field with the image's name, and the image's folder."""
ANNOTATIONS = "test_annotations.json"


def descriptions(folder: Path, parts: Sequence[str]) -> list[dict[str, Any]]:
    """The images of some parts, with the sentences that people wrote."""
    found = []
    for part in parts:
        field, place = FIELDS[part]
        for _, row in line_entries(folder / part / "data.jsonl", (field, "IIW")):
            name = place.format(row[field])
            captions = sentences(row["IIW"])
            found.append({"item": name, "image": str(folder / name), "image_id": name, "captions": captions})
    return found


def _benchmark(name: str, title: str, parts: Sequence[str]) -> Benchmark:
    folders = [FIELDS[part][1].partition("/")[0] for part in parts]
    return Benchmark(
        name=name,
        title=title,
        suite=GENERAL,
        protocol=Retrieval(),
        data=(
            RawFiles(
                required_files=tuple(f"{part}/data.jsonl" for part in parts),
                read=partial(descriptions, parts=parts),
                layout=f"{', '.join(parts)} of datasets/ of github.com/google/imageinwords, with folders of images "
                f"{', '.join(folders)}",
            ),
            RawFiles(
                required_files=(ANNOTATIONS,),
                read=partial(annotated, file=ANNOTATIONS, only="" if len(parts) == len(FIELDS) else f"{folders[0]}/"),
                layout=f"{ANNOTATIONS} of github.com/ExplainableML/flair with folders of images {', '.join(folders)}",
            ),
        ),
        paper="Garg et al. 2024, arXiv:2405.02793",
        licence="CC BY 4.0; images of DCI under SA-1B's licence" if "dci" in folders else "CC BY 4.0",
        obtain=(
            "The images are in docci_images_aar.tar.gz (IIW-400), docci_images.tar.gz (DOCCI_Test), both at "
            "https://google.github.io/docci, and in Meta's SA-1B, for which one registers (DCI_Test). Pass a folder "
            f"with them and the texts as --data {name}=FOLDER."
        ),
        version=2,
    )


IMAGEINWORDS = _benchmark("imageinwords", "ImageInWords retrieval", tuple(FIELDS))
IMAGEINWORDS_400 = _benchmark("imageinwords_400", "ImageInWords-400 retrieval", ("IIW-400",))
