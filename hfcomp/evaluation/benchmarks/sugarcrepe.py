"""SugarCrepe (Hsieh et al. 2023): 7,511 choices between a COCO caption and a fluent false one, in seven subsets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

SUBSETS = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")


@dataclass(frozen=True)
class SugarCrepeItem:
    """One choice.

    Attributes:
        subset: one of `SUBSETS`.
        item: its key in the subset's file.
        image: path of the COCO val2017 photograph.
        caption: the true one.
        negative_caption: the false one.
    """

    subset: str
    item: str
    image: Path
    caption: str
    negative_caption: str


def sugarcrepe_items(folder: str | Path, images: str | Path) -> tuple[list[SugarCrepeItem], int]:
    """Reads the authors' seven JSON files.

    Args:
        folder: with `add_att.json` and so on, as in the authors' repository.
        images: COCO val2017 photographs by file name.

    Returns:
        The items whose photograph is there, and the number of those whose photograph is not.

    Raises:
        FileNotFoundError: when a subset's file is missing, or no photograph of any item is there.
    """
    found, absent = [], 0
    for subset in SUBSETS:
        path = Path(folder) / f"{subset}.json"
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing; get it from the data folder of github.com/RAIVNLab/sugar-crepe."
            )
        for key, row in json.loads(path.read_text()).items():
            image = Path(images) / row["filename"]
            if image.is_file():
                found.append(SugarCrepeItem(subset, key, image, row["caption"], row["negative_caption"]))
            else:
                absent += 1
    if not found:
        raise FileNotFoundError(
            f"{images}: holds none of SugarCrepe's photographs (COCO val2017, 12 digits and .jpg)."
        )
    return found, absent
