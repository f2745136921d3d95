"""ECCV Caption (Chun et al. 2022): COCO retrieval in which all captions and images that match count as right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.files import entries, object_in
from hfcomp.evaluation.benchmarks.readers.pools import COCO_VAL2014
from hfcomp.evaluation.protocols.retrieval import RepairedRetrieval
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark

GALLERY, IMAGES_OF, CAPTIONS_OF = (
    "original_image_to_caption.json",
    "eccv_caption_to_image.json",
    "eccv_image_to_caption.json",
)
"""All images with their own captions; the right images of some captions; the right captions of some images."""
COCO, KARPATHY = "captions_val2014.json", "dataset_coco.json"


def coco_texts(folder: Path) -> dict[str, str]:
    captions = entries(folder / COCO, ("id", "caption"), inside="annotations")
    return {str(entry["id"]): entry["caption"] for _, entry in captions}


def karpathy_texts(folder: Path) -> dict[str, str]:
    images = entries(folder / KARPATHY, ("sentences",), inside="images")
    return {str(sentence["sentid"]): sentence["raw"] for _, image in images for sentence in image["sentences"]}


def rows(folder: Path, *, texts: Callable[[Path], Mapping[str, str]]) -> list[dict[str, Any]]:
    """Reads the 5,000 images, each with its five captions, and the right keys of those that are queries."""
    caption_texts = texts(folder)
    images_of, captions_of = (_numbers(folder / file) for file in (IMAGES_OF, CAPTIONS_OF))
    items = []
    for image, captions in _numbers(folder / GALLERY).items():
        # Captions are joined by their numbers, which differ between releases of COCO.
        absent = [caption for caption in captions if caption not in caption_texts]
        if absent:
            raise ValueError(
                f"{folder / GALLERY}, image {image}: the file with COCO's captions has no caption {absent[0]}. Pass "
                "the file for COCO 2014's validation images, or Karpathy's file for all of COCO."
            )
        items.append(
            {
                "item": image,
                "image": f"COCO_val2014_{int(image):012}.jpg",
                "captions": [caption_texts[caption] for caption in captions],
                "caption_ids": captions,
                "right_captions": captions_of.get(image, []),
                "right_images": [images_of.get(caption, []) for caption in captions],
            }
        )
    return items


def _numbers(file: Path) -> dict[str, list[str]]:
    return {name: list(map(str, numbers)) for name, numbers in object_in(file, ()).items()}


REPAIRED = (GALLERY, IMAGES_OF, CAPTIONS_OF)
WEB = "https://github.com/naver-ai/eccv-caption/tree/b51f56cfd1a5f530a04c8f54eba880d302ccd7a5/eccv_caption/data"


def _form(file: str, texts: Callable[[Path], dict[str, str]]) -> RawFiles:
    layout = f"{', '.join(REPAIRED)} of {WEB}, {file} and a folder val2014/"
    return RawFiles((*REPAIRED, file), partial(rows, texts=texts), layout, COCO_VAL2014)


ECCV_CAPTION = Benchmark(
    name="eccv_caption",
    title="ECCV Caption",
    suite=GENERAL,
    protocol=RepairedRetrieval(),
    data=(_form(COCO, coco_texts), _form(KARPATHY, karpathy_texts)),
    paper="Chun et al. 2022, arXiv:2204.03359",
    license="MIT; parts of Crisscrossed Captions, Apache-2.0; captions of COCO, CC BY 4.0",
    obtain="Get the three files of the authors' repository, COCO's annotations_trainval2014.zip (or Karpathy's "
    f"dataset_coco.json), and put them into one folder. {COCO_VAL2014.obtain}",
)
