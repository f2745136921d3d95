"""Classification datasets in CLIP_benchmark's archives, or in their authors' layout with one folder per class."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.data.formats.archives import COUNT, check_end, not_whole, numbered_archives
from hfcomp.evaluation.cells import Inset, LazyCells, map_cells
from hfcomp.evaluation.spec import BenchmarkData, Data, Folders, Origin, Unavailable
from hfcomp.reading import read_json

TEST, TRAIN = "test", "train"
CLASSES = "classnames.txt"
TEMPLATES = "zeroshot_classification_templates.txt"
IMAGE_ENDINGS = ("webp", "jpg", "jpeg", "png")


@dataclass(frozen=True)
class WebDatasetData(Data):
    """A `clip-benchmark` repository on the Hub, or a folder in that layout.

    Attributes:
        repo: Hub id.
        train: Whether to also read the training images, for a probe. Otherwise prompts are read.
        bins: Number of bins of equal width into which adjacent labels are merged.
        revision: Commit, if one could be confirmed.
    """

    repo: str
    train: bool = False
    bins: int | None = None
    revision: str | None = None

    @property
    def name(self) -> str:
        """Name of the repository's clone, such as `wds_food101`: the folder that its benchmarks share."""
        return self.repo.rpartition("/")[2]

    @property
    def layout(self) -> str:
        beside = TRAIN if self.train else TEMPLATES
        return f"the files of {self.repo} on the Hub ({TEST}/0.tar, {TEST}/{COUNT}, {CLASSES}, {beside} and so on)"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        if not any((folder / TEST / name).is_file() for name in (COUNT, "0.tar")):
            return None
        return self._items(folder, Origin(str(folder)))

    def remote(self, folders: Folders) -> BenchmarkData:
        from hfcomp.evaluation import hub

        patterns = [CLASSES, TEMPLATES, f"{TEST}/*", *([f"{TRAIN}/*"] if self.train else [])]
        folder = hub.repository(self.repo, patterns, self.revision)
        return self._items(folder, Origin(self.repo, folder.name))

    def _items(self, folder: Path, origin: Origin) -> BenchmarkData:
        from datasets import Dataset

        if self.train and not (folder / TRAIN / COUNT).is_file():
            raise Unavailable(
                f"{origin.place} has no training images ({TRAIN}/{COUNT} is missing).",
                f"Pass a folder with {TRAIN}/0.tar and so on, in the format of {TEST}/.",
            )
        classes = class_names(folder)
        test, images = self._split(folder, TEST, len(classes))
        rows = Dataset.from_dict({"label": test.label, "item": test.key, "image_id": test.key})
        # Merged labels no longer have class names.
        labels = () if self.bins else classes
        if not self.train:
            return BenchmarkData(rows, origin, {"image": images}, classes=labels, templates=class_templates(folder))
        fitted, training = self._split(folder, TRAIN, len(classes))
        lacking = [row for row, (_, start, _) in enumerate(fitted.place) if start < 0]
        if lacking:
            raise ValueError(f"{folder / TRAIN}: the sample {fitted.key[lacking[0]]!r} has no image. Remove it.")
        train = BenchmarkData(Dataset.from_dict({"label": fitted.label}), origin, {"image": training})
        return BenchmarkData(rows, origin, {"image": images}, classes=labels, train=train)

    def _split(self, folder: Path, name: str, classes: int) -> tuple[_Samples, LazyCells]:
        samples, shards = _Samples(), numbered_archives(folder / name)
        for number, shard in enumerate(shards):
            for key, label, (start, size) in _samples(shard):
                if not 0 <= label < classes:
                    raise ValueError(
                        f"{shard}: the sample {key!r} has the label {label}, expected 0 to {classes - 1}, because "
                        f"{CLASSES} has {classes} lines."
                    )
                samples.key.append(key)
                # Adjacent labels are merged, because such labels count positions or angles.
                samples.label.append(label if self.bins is None else label * self.bins // classes)
                samples.place.append((number, start, size))
        return samples, tar_images(shards, np.array(samples.place, dtype=np.int64).reshape(-1, 3), samples.key)


@dataclass(frozen=True)
class _Samples:
    """The samples of a split: each one's key, label, and its image's archive, first byte (-1: none) and size."""

    key: list[str] = field(default_factory=list)
    label: list[int] = field(default_factory=list)
    place: list[tuple[int, int, int]] = field(default_factory=list)


def tar_images(archives: Sequence[Path], place: NDArray[np.int64], names: Sequence[str]) -> LazyCells:
    """Returns encoded images from uncompressed tar archives; `None` for a missing one."""

    def read(row: int) -> Any:
        archive, start, size = place[row].tolist()
        if start < 0:
            return None
        # Opened per image, so threads and processes that read at the same time do not share a position.
        with archives[archive].open("rb") as file:
            file.seek(start)
            return {"bytes": file.read(size), "path": names[row]}

    return LazyCells(len(place), read)


def _samples(shard: Path) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Yields each sample of an archive: its key, its label, and its image's first byte and size."""
    labels: dict[str, str] = {}
    images: dict[str, tuple[int, int]] = {}
    try:
        with shard.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                # Archives made from `.` have this prefix on every name.
                folder, slash, name = member.name.removeprefix("./").rpartition("/")
                # WebDataset's rule: a sample's key ends at the first dot of the file name.
                stem, _, ending = name.partition(".")
                if not stem or not member.isfile():
                    continue
                key = f"{folder}{slash}{stem}"
                if ending.lower() in IMAGE_ENDINGS:
                    images[key] = (member.offset_data, member.size)
                elif ending == "cls":
                    # Labels are read now. Images stay in the archive, and only their position is kept.
                    file.seek(member.offset_data)
                    labels[key] = file.read(member.size).decode("ascii", "replace").strip()
            # Python's reader does not raise if an archive is cut between two members.
            check_end(file, archive.offset)
    except tarfile.ReadError as error:
        raise ValueError(not_whole(shard, error)) from error
    # In the order of the images, so an archive is read from front to back.
    for key in dict.fromkeys((*images, *labels)):
        if not labels.get(key, "").isdigit():
            raise ValueError(f"{shard}: {key}.cls contains {labels.get(key)!r}, expected a class index.")
        yield key, int(labels[key]), images.get(key, (-1, 0))


def class_names(folder: Path) -> tuple[str, ...]:
    """Reads the class names in a folder's `classnames.txt`, one per line. An empty line counts as a class."""
    return tuple(line.strip() for line in _text(folder / CLASSES, "the name of a class").splitlines())


def class_templates(folder: Path) -> tuple[str, ...]:
    """Reads the prompts in a folder's `zeroshot_classification_templates.txt`, one per line, `{c}` being the class."""
    path = folder / TEMPLATES
    lines = [line.strip() for line in _text(path, "a prompt with {c} for the class").splitlines()]
    for number, line in enumerate(lines, start=1):
        if line and "{c}" not in line:
            raise ValueError(f"{path}, line {number}: found {line!r}, expected a prompt with {{c}} for the class.")
    templates = tuple(filter(None, lines))
    if not templates:
        raise ValueError(f"{path} is empty: expected a prompt with {{c}} for the class on each line.")
    return templates


def _text(path: Path, line: str) -> str:
    if not path.is_file():
        raise ValueError(
            f"{path} is missing: expected {line} on each line. Copy it from the dataset's repository at "
            "https://huggingface.co/clip-benchmark, or create it."
        )
    return path.read_text(encoding="utf-8")


WORDNET, NUMBERS, ANY = r"n\d{8}", r"\d+", r"[^.].*"
LABELS, OVERLAP = "folder_to_objectnet_label.json", "objectnet_to_imagenet_1k.json"
OTHER_CLASS = "class that ImageNet does not have"
BORDER = 2  # the red border of ObjectNet is one pixel wide; the code of wise-ft cuts two


@dataclass(frozen=True)
class ClassFolders(Data):
    """One folder of images per class, with names and prompts from a `clip-benchmark` repository.

    Labels count the sorted folders, and numbers are sorted as numbers. ImageNet's order is that of its WordNet ids.

    Attributes:
        repo: Hub id of the repository with `classnames.txt` and `zeroshot_classification_templates.txt`, which are
            downloaded if the folder lacks them.
        name: Name of the folder that the authors' archive unpacks into.
        pattern: Regular expression for the names of class folders.
        mappings: Folder with ObjectNet's two mappings, if only the classes of ImageNet count.
    """

    repo: str
    name: str
    pattern: str = WORDNET
    mappings: str | None = None

    @property
    def layout(self) -> str:
        beside = f" and {self.mappings}/ with {LABELS} and {OVERLAP}" if self.mappings else ""
        return f"{self.name}/ with a folder per class, as the authors' archive unpacks{beside}"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        for place in (folder / self.name, *([] if self.mappings else [folder])):
            if place.is_dir() and (classes := [path for path in place.iterdir() if self._is_class(path)]):
                return self._items(folder, sorted(classes, key=self._order))
        return None

    def _order(self, path: Path) -> tuple[int, str]:
        return int(path.name) if self.pattern == NUMBERS else 0, path.name

    def _is_class(self, path: Path) -> bool:
        return path.is_dir() and re.fullmatch(self.pattern, path.name) is not None

    def _items(self, folder: Path, classes: list[Path]) -> BenchmarkData:
        from datasets import Dataset

        # ObjectNet's other classes are not named among ImageNet's, so no model could be right on them.
        kept = classes if self.mappings is None else [path for path in classes if path.name in self._overlap(folder)]
        names_folder = self._names_folder(folder)
        names = class_names(names_folder)
        if len(kept) != len(names):
            raise ValueError(
                f"{folder}: found {len(kept)} class folders, expected {len(names)}, one for each line of "
                f"{names_folder / CLASSES}. Unpack the archive again."
            )
        images = {path: _images(path) for path in classes}
        rows = {
            "label": [label for label, path in enumerate(kept) for _ in images[path]],
            "item": [f"{path.name}/{file.name}" for path in kept for file in images[path]],
        }
        rows["image_id"] = rows["item"]
        cells = {"image": [str(file) for path in kept for file in images[path]]}
        others = sum(len(images[path]) for path in classes if path not in kept)
        return BenchmarkData(
            Dataset.from_dict(rows),
            Origin(str(folder)),
            cells,
            left_out={OTHER_CLASS: others} if others else {},
            classes=names,
            templates=class_templates(names_folder),
        )

    def _overlap(self, folder: Path) -> set[str]:
        """Returns the folders of ObjectNet's classes that are also in ImageNet."""
        label_of, imagenet = (_mapping(folder / str(self.mappings) / file) for file in (LABELS, OVERLAP))
        return {name for name, label in label_of.items() if label in imagenet}

    def _names_folder(self, folder: Path) -> Path:
        # A folder with one of the two files must have both: names and prompts from two places might not match.
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
    images = sorted(file for file in path.iterdir() if file.suffix.lower().removeprefix(".") in IMAGE_ENDINGS)
    if not images:
        raise ValueError(f"{path} has no images; expected files that end in {', '.join(IMAGE_ENDINGS)}.")
    return images


def _mapping(file: Path) -> Mapping[str, str]:
    content = read_json(file)
    if not isinstance(content, dict):
        raise ValueError(f"{file}: found a {type(content).__name__}, expected an object. Unpack the archive again.")
    return content


def without_border(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """Cuts ObjectNet's red border off the images."""
    images = map_cells(items.images["image"], lambda cell, row: Inset(cell, BORDER))
    return replace(items, images={"image": images})
