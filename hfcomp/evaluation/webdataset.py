"""Classification sets as CLIP_benchmark packs them: tar archives of images and labels, class names, prompts.

Archives are read in place. `datasets` could load them too, but it copies all images, takes the columns from
the first five samples of the last split, and fetches every split: ImageNet's training images for its test.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hfcomp.data.formats.archives import COUNT, check_end, not_whole, numbered_archives
from hfcomp.evaluation.spec import BenchmarkData, Folders, Origin, Unavailable

TEST, TRAIN = "test", "train"
CLASSES = "classnames.txt"
TEMPLATES = "zeroshot_classification_templates.txt"
IMAGE_ENDINGS = ("webp", "jpg", "jpeg", "png")


@dataclass(frozen=True)
class WebDatasetData:
    """A repository of `clip-benchmark` on the Hub, or a folder in that layout.

    Attributes:
        repo: id on the Hub.
        train: whether to read the training images too, for a probe; without, prompts are read instead.
        bins: merges the labels, neighbours together, into that many of equal width.
        revision: a commit, where one could be confirmed.
    """

    repo: str
    train: bool = False
    bins: int | None = None
    revision: str | None = None

    @property
    def name(self) -> str:
        """Of a clone of the repository, such as `wds_food101`: the folder that its benchmarks share."""
        return self.repo.rpartition("/")[2]

    @property
    def layout(self) -> str:
        """In words."""
        beside = TRAIN if self.train else TEMPLATES
        return f"the files of {self.repo} on the Hub ({TEST}/0.tar, {TEST}/{COUNT}, {CLASSES}, {beside} and so on)"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        """The items, when the folder holds archives of test images."""
        if not any((folder / TEST / name).is_file() for name in (COUNT, "0.tar")):
            return None
        return self._items(folder, Origin(str(folder)))

    def remote(self, folders: Folders) -> BenchmarkData:
        """The items from the Hub."""
        from hfcomp.evaluation import hub

        wanted = [CLASSES, TEMPLATES, f"{TEST}/*", *([f"{TRAIN}/*"] if self.train else [])]
        folder = hub.repository(self.repo, wanted, self.revision)
        return self._items(folder, Origin(self.repo, folder.name))

    def _items(self, folder: Path, origin: Origin) -> BenchmarkData:
        from datasets import Dataset

        if self.train and not (folder / TRAIN / COUNT).is_file():
            raise Unavailable(
                f"{origin.place} has no training images ({TRAIN}/{COUNT} is missing).",
                f"Pass a folder with {TRAIN}/0.tar and so on, written as {TEST}/ is.",
            )
        classes = class_names(folder)
        test, images = self._split(folder, TEST, len(classes))
        rows = Dataset.from_dict({"label": test.label, "item": test.key, "image_id": test.key})
        named = () if self.bins else classes
        if not self.train:
            return BenchmarkData(rows, origin, {"image": images}, classes=named, templates=class_templates(folder))
        fitted, training = self._split(folder, TRAIN, len(classes))
        lacking = np.flatnonzero(training.missing)
        if len(lacking):
            raise ValueError(f"{folder / TRAIN}: the sample {fitted.key[lacking[0]]!r} has no image. Remove it.")
        train = BenchmarkData(Dataset.from_dict({"label": fitted.label}), origin, {"image": training})
        return BenchmarkData(rows, origin, {"image": images}, classes=named, train=train)

    def _split(self, folder: Path, name: str, classes: int) -> tuple[_Samples, TarImages]:
        samples, shards = _Samples(), numbered_archives(folder / name)
        for number, shard in enumerate(shards):
            for key, label, (start, size) in _samples(shard):
                if not 0 <= label < classes:
                    raise ValueError(
                        f"{shard}: the sample {key!r} has the label {label}, expected 0 to {classes - 1}, one line "
                        f"of {CLASSES} each."
                    )
                samples.key.append(key)
                samples.label.append(label if self.bins is None else label * self.bins // classes)
                samples.place.append((number, start, size))
        return samples, TarImages(shards, np.array(samples.place, dtype=np.int64).reshape(-1, 3), samples.key)


@dataclass(frozen=True)
class _Samples:
    """Of a split: the key of each sample, its label, and its image's archive, first byte (-1: none) and size."""

    key: list[str] = field(default_factory=list)
    label: list[int] = field(default_factory=list)
    place: list[tuple[int, int, int]] = field(default_factory=list)


class TarImages(Sequence[Any]):
    """Encoded images inside uncompressed tar archives, read on demand; `None` for a missing one.

    Args:
        archives: paths.
        place: `[n, 3]`, of each image its archive, first byte (-1 for no image) and size.
        names: `[n]`, what images are called.
    """

    def __init__(self, archives: Sequence[Path], place: NDArray[np.int64], names: Sequence[str]) -> None:
        self._archives = archives
        self._place = place
        self._names = names

    def __len__(self) -> int:
        return len(self._place)

    def __getitem__(self, index: Any) -> Any:
        archive, start, size = self._place[index].tolist()
        if start < 0:
            return None
        with self._archives[archive].open("rb") as file:
            file.seek(start)
            return {"bytes": file.read(size), "path": self._names[index]}

    @property
    def missing(self) -> NDArray[np.bool_]:
        """`[n]`, which images are not there."""
        return self._place[:, 1] < 0


def _samples(shard: Path) -> Iterator[tuple[str, int, tuple[int, int]]]:
    """Key, label, and the first byte and size of the image, of each sample in an archive."""
    labels: dict[str, str] = {}
    images: dict[str, tuple[int, int]] = {}
    try:
        with shard.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                folder, slash, name = member.name.removeprefix("./").rpartition("/")
                stem, _, ending = name.partition(".")
                if not stem or not member.isfile():
                    continue
                key = f"{folder}{slash}{stem}"
                if ending.lower() in IMAGE_ENDINGS:
                    images[key] = (member.offset_data, member.size)
                elif ending == "cls":
                    file.seek(member.offset_data)
                    labels[key] = file.read(member.size).decode("ascii", "replace").strip()
            check_end(file, archive.offset)
    except tarfile.ReadError as error:
        raise ValueError(not_whole(shard, error)) from error
    for key in dict.fromkeys((*images, *labels)):
        if not labels.get(key, "").isdigit():
            raise ValueError(f"{shard}: {key}.cls holds {labels.get(key)!r}, expected a class index.")
        yield key, int(labels[key]), images.get(key, (-1, 0))


def class_names(folder: Path) -> tuple[str, ...]:
    """The names in a folder's `classnames.txt`, one a line; a line may be empty and still count."""
    return tuple(line.strip() for line in _text(folder / CLASSES, "the name of a class").splitlines())


def class_templates(folder: Path) -> tuple[str, ...]:
    """The prompts in a folder's `zeroshot_classification_templates.txt`, one a line, with `{c}` for the class.

    Raises:
        ValueError: for a file that is missing or empty, or a line without `{c}`.
    """
    path = folder / TEMPLATES
    lines = [line.strip() for line in _text(path, "a prompt with {c} for the class").splitlines()]
    for number, line in enumerate(lines, start=1):
        if line and "{c}" not in line:
            raise ValueError(f"{path}, line {number}: found {line!r}, expected a prompt with {{c}} for the class.")
    found = tuple(filter(None, lines))
    if not found:
        raise ValueError(f"{path} is empty: expected a prompt with {{c}} for the class in each line.")
    return found


def _text(path: Path, line: str) -> str:
    if not path.is_file():
        raise ValueError(
            f"{path} is missing: expected {line} in each line. Copy it from the data set's repository at "
            "https://huggingface.co/clip-benchmark, or create it."
        )
    return path.read_text(encoding="utf-8")
