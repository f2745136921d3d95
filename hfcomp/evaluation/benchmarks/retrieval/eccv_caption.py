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

GALLERY, IMAGES_OF, CAPTIONS_OF = ECCV_FILES = (
    "original_image_to_caption.json",
    "eccv_caption_to_image.json",
    "eccv_image_to_caption.json",
)
"""Files: all images with their own captions; the matching images of some captions; the matching captions of some
images."""
COCO, KARPATHY = "captions_val2014.json", "dataset_coco.json"


def coco_texts(folder: Path) -> dict[str, str]:
    captions = entries(folder / COCO, ("id", "caption"), inside="annotations")
    return {str(entry["id"]): entry["caption"] for _, entry in captions}


def karpathy_texts(folder: Path) -> dict[str, str]:
    images = entries(folder / KARPATHY, ("sentences",), inside="images")
    return {str(sentence["sentid"]): sentence["raw"] for _, image in images for sentence in image["sentences"]}


def rows(folder: Path, *, texts: Callable[[Path], Mapping[str, str]]) -> list[dict[str, Any]]:
    """Reads the 5,000 images, each with its five captions, and the ids of the matches of those that are queries."""
    caption_texts = texts(folder)
    images_of, captions_of = (_read_ids(folder / file) for file in (IMAGES_OF, CAPTIONS_OF))
    items = []
    for image, captions in _read_ids(folder / GALLERY).items():
        # Captions are matched by their ids, which differ between releases of COCO.
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


def _read_ids(file: Path) -> dict[str, list[str]]:
    return {name: list(map(str, ids)) for name, ids in object_in(file, ()).items()}


WEB = "https://github.com/naver-ai/eccv-caption/tree/b51f56cfd1a5f530a04c8f54eba880d302ccd7a5/eccv_caption/data"


def _data_format(file: str, texts: Callable[[Path], dict[str, str]]) -> RawFiles:
    layout = f"{', '.join(ECCV_FILES)} of {WEB}, {file} and a folder val2014/"
    return RawFiles((*ECCV_FILES, file), partial(rows, texts=texts), layout, COCO_VAL2014)


ECCV_CAPTION = Benchmark(
    name="eccv_caption",
    title="ECCV Caption",
    suite=GENERAL,
    protocol=RepairedRetrieval(),
    data=(_data_format(COCO, coco_texts), _data_format(KARPATHY, karpathy_texts)),
    paper="Chun et al. 2022, arXiv:2204.03359",
    license="MIT; contains parts of Crisscrossed Captions (Apache-2.0) and captions of COCO (CC BY 4.0)",
    obtain="Get the three files from the authors' repository and COCO's annotations_trainval2014.zip (or Karpathy's "
    f"dataset_coco.json), and put all of them into one folder. {COCO_VAL2014.obtain}",
)
