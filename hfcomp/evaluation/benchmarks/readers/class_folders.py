"""Classification sets as folders of images, one per class, as their authors give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hfcomp.evaluation.cells import Inset, MappedImages
from hfcomp.evaluation.spec import BenchmarkData, Folders, Origin, Unavailable
from hfcomp.evaluation.webdataset import CLASSES, IMAGE_ENDINGS, TEMPLATES, class_names, class_templates
from hfcomp.reading import read_json

WORDNET, NUMBERS, ANY = r"n\d{8}", r"\d+", r"[^.].*"
LABELS, OVERLAP = "folder_to_objectnet_label.json", "objectnet_to_imagenet_1k.json"
OTHER_CLASS = "class that ImageNet does not have"
BORDER = 2  # the red border of ObjectNet is one pixel wide; the code of wise-ft cuts two


@dataclass(frozen=True)
class ClassFolders:
    """A folder of images for each class; names and prompts are those of a repository of `clip-benchmark`.

    Labels count the folders in their order, numbers as numbers: ImageNet's order is that of its WordNet ids.

    Attributes:
        repo: with `classnames.txt` and `zeroshot_classification_templates.txt`, which are fetched where the folder
            lacks them.
        name: of the folder that the authors' archive unpacks into.
        pattern: of the names of class folders.
        mappings: the folder with ObjectNet's two mappings, where only the classes of ImageNet count.
    """

    repo: str
    name: str
    pattern: str = WORDNET
    mappings: str | None = None

    @property
    def layout(self) -> str:
        """In words."""
        beside = f" and {self.mappings}/ with {LABELS} and {OVERLAP}" if self.mappings else ""
        return f"{self.name}/ with a folder per class, as the authors' archive unpacks{beside}"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        """The items, when the folder holds the authors' folder, or is it."""
        for place in (folder / self.name, *([] if self.mappings else [folder])):
            if place.is_dir() and (found := [path for path in place.iterdir() if self._is_class(path)]):
                return self._items(folder, sorted(found, key=self._order))
        return None

    def remote(self, folders: Folders) -> BenchmarkData:
        """Never: the authors' archives are not on the Hub in this form."""
        raise Unavailable("", "")

    def _order(self, path: Path) -> tuple[int, str]:
        return int(path.name) if self.pattern == NUMBERS else 0, path.name

    def _is_class(self, path: Path) -> bool:
        return path.is_dir() and re.fullmatch(self.pattern, path.name) is not None

    def _items(self, folder: Path, found: list[Path]) -> BenchmarkData:
        from datasets import Dataset

        kept = found if self.mappings is None else [path for path in found if path.name in self._overlap(folder)]
        named = self._named(folder)
        names = class_names(named)
        if len(kept) != len(names):
            raise ValueError(
                f"{folder}: found {len(kept)} class folders, expected {len(names)}, one for each line of "
                f"{named / CLASSES}. Unpack the archive again."
            )
        images = {path: _images(path) for path in found}
        rows = {
            "label": [label for label, path in enumerate(kept) for _ in images[path]],
            "item": [f"{path.name}/{file.name}" for path in kept for file in images[path]],
        }
        rows["image_id"] = rows["item"]
        cells = {"image": [str(file) for path in kept for file in images[path]]}
        others = sum(len(images[path]) for path in found if path not in kept)
        return BenchmarkData(
            Dataset.from_dict(rows),
            Origin(str(folder)),
            cells,
            left_out={OTHER_CLASS: others} if others else {},
            classes=names,
            templates=class_templates(named),
        )

    def _overlap(self, folder: Path) -> set[str]:
        """The folders of ObjectNet's classes that ImageNet has too."""
        label_of, imagenet = (_mapping(folder / str(self.mappings) / file) for file in (LABELS, OVERLAP))
        return {name for name, label in label_of.items() if label in imagenet}

    def _named(self, folder: Path) -> Path:
        """The folder with names and prompts."""
        if (folder / CLASSES).is_file() or (folder / TEMPLATES).is_file():
            return folder
        from hfcomp.evaluation import hub

        try:
            return hub.repository(self.repo, [CLASSES, TEMPLATES], None)
        except Unavailable as error:
            raise Unavailable(
                f"{folder} has no {CLASSES} and {TEMPLATES}, and {error.reason}",
                f"Copy both files from https://huggingface.co/datasets/{self.repo} into {folder}.",
            ) from error


def _images(path: Path) -> list[Path]:
    found = sorted(file for file in path.iterdir() if file.suffix.lower().removeprefix(".") in IMAGE_ENDINGS)
    if not found:
        raise ValueError(f"{path} has no images; expected files that end in {', '.join(IMAGE_ENDINGS)}.")
    return found


def _mapping(file: Path) -> Mapping[str, str]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise ValueError(f"{file}: found a {type(content).__name__}, expected an object. Unpack the archive again.")
    return content


def without_border(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """Items with images without ObjectNet's red border."""
    images = MappedImages(items.images["image"], lambda cell, row: Inset(cell, BORDER))
    return replace(items, images={"image": images})
