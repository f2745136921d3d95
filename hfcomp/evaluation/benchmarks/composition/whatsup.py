"""What'sUp (Kamath et al. 2023): left or right, on or under, in front or behind?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.files import entries, listed_entries
from hfcomp.evaluation.benchmarks.readers.pools import COCO_VAL2017, VISUAL_GENOME
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice, JointChoice
from hfcomp.evaluation.sources import Pool, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

CONTROLLED = {
    "A": ("controlled_images_dataset.json", "controlled_images"),
    "B": ("controlled_clevr_dataset.json", "controlled_clevr"),
}
"""File and image folder of each part of the photographs taken for this benchmark."""


def controlled_rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the photographs of two objects in four arrangements.

    The four photographs of the same two objects form a set, opposite arrangements a pair. Names look like
    `mug_left_of_plate.jpeg`.
    """
    items = []
    for subset, (file, images) in CONTROLLED.items():
        for _, entry in entries(folder / file, ("image_path", "caption_options")):
            name = Path(entry["image_path"]).name
            words = Path(name).stem.split("_")
            caption, *negatives = entry["caption_options"]
            row = {"subset": subset, "item": name, "image": str(folder / images / name), "caption": caption}
            objects = f"{words[0]} {words[-1]}"
            axis = "left and right" if words[1:2] in (["left"], ["right"]) else "the others"
            # The photographs of a set show the same objects on the same ground, so intervals resample sets.
            groups = {"set": objects, "pair": f"{objects}, {axis}", "image_id": f"{subset} {objects}"}
            items.append({**row, "negative_captions": negatives, **groups})
    return items


def spatial_rows(folder: Path, *, files: Mapping[str, str], name: str) -> list[dict[str, Any]]:
    return [
        {
            "subset": subset,
            "item": place,
            "image": name.format(int(entry["image"])),
            "caption": entry["caption"],
            "negative_captions": [entry["negative"]],
        }
        for subset, file in files.items()
        for place, entry in listed_entries(folder / file, ("image", "caption", "negative"))
    ]


def _spatial(source: str, pool: Pool, name: str) -> RawFiles:
    files = {f"{number}_obj": f"{source}_qa_{number}_obj.json" for number in ("one", "two")}
    layout = f"{' and '.join(files.values())} of github.com/amitakamath/whatsup_vlms and a folder {pool.name}/"
    return RawFiles(tuple(files.values()), partial(spatial_rows, files=files, name=name), layout, pool)


_PARTS = tuple(name for part in CONTROLLED.values() for name in part)
CONTROLLED_IMAGES = RawFiles(_PARTS, controlled_rows, f"{', '.join(_PARTS)} of github.com/amitakamath/whatsup_vlms")
COCO_SPATIAL = _spatial("coco", COCO_VAL2017, "{:012}.jpg")
GQA_SPATIAL = _spatial("vg", VISUAL_GENOME, "{}.jpg")


DRIVE = "https://drive.google.com/drive/u/3/folders/164q6X9hrvP-QYpi3ioSnfMuyHpG5oRkZ"


def _benchmark(name: str, title: str, form: RawFiles, protocol: CaptionChoice, macro: str) -> Benchmark:
    return Benchmark(
        name=f"whatsup_{name}",
        title=f"What'sUp {title}",
        suite=COMPOSITIONAL,
        protocol=protocol,
        data=(form,),
        averages=(Average(macro),),
        paper="Kamath et al. 2023, arXiv:2310.19785",
        license="MIT (the repository); images of COCO and Visual Genome, their own",
        obtain=f"Get its files from {DRIVE}. {form.pool.obtain if form.pool else ''}".strip(),
        folder="whatsup",
    )


# The means are those of the paper's Table 1.
MACRO = "macro of one and two objects"
WHATSUP = (
    _benchmark("controlled", "controlled images", CONTROLLED_IMAGES, JointChoice(), "macro of A and B"),
    _benchmark("coco", "COCO spatial", COCO_SPATIAL, CaptionChoice(), MACRO),
    _benchmark("gqa", "GQA spatial", GQA_SPATIAL, CaptionChoice(), MACRO),
)
