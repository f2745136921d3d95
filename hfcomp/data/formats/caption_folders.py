"""Folders of images and captions: COCO as downloaded, and images with text files next to them.

COCO folders contain either COCO's own JSON files of captions or Karpathy's:

| files | splits | `config` |
|---|---|---|
| `annotations/captions_train2017.json` and `train2017/` | `train2017`; `train` if only one year exists | `captions` |
| `dataset_coco.json` and `train2014/`, `val2014/` | `train`, `restval`, `val`, `test` | `karpathy` |

Image folders may also be in `images/`. Karpathy's splits also work with the 2017 images, which have the same numbers.
Each image is a row: `image`, `caption` (a list), `image_id`, `license` (null if no captions file in `annotations/`
states it) and `source`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, Features, Image, List, Value

from hfcomp.data.publishing import COCO_LICENSES
from hfcomp.reading import read_json, short_repr

CAPTIONS, KARPATHY = "captions", "karpathy"
COCO_FEATURES = Features(
    {
        "image": Image(),
        "caption": List(Value("string")),
        "image_id": Value("string"),
        "license": Value("string"),
        "source": Value("string"),
    }
)
_CAPTION_FILE = re.compile(r"captions_([a-z]+)(\d{4})\.json")
_KARPATHY_FILE = "dataset_coco.json"
_ANNOTATIONS = "annotations"
Rows = dict[str, list[Any]]


def is_coco_folder(folder: Path) -> bool:
    return folder.is_dir() and bool(_caption_files(folder) or _karpathy_file(folder))


def read_coco_folder(folder: Path, names: Iterable[str], config: str | None = None) -> DatasetDict:
    """Reads the named splits that a COCO folder has, by default from `captions`, otherwise from `karpathy`.

    Missing images keep their row; the code that reads them reports it.
    """
    known = {CAPTIONS: bool(_caption_files(folder)), KARPATHY: _karpathy_file(folder) is not None}
    existing = [name for name, exists in known.items() if exists]
    chosen = existing[0] if config is None else config
    if not known.get(chosen):
        raise ValueError(f"{folder} has no config {chosen!r}; it has: {', '.join(existing)}.")
    read = _read_captions if chosen == CAPTIONS else _read_karpathy
    return DatasetDict(
        {name: Dataset.from_dict(rows, features=COCO_FEATURES) for name, rows in read(folder, list(names)).items()}
    )


def coco_splits(folder: Path) -> list[str]:
    # Karpathy's file of 140 MB is not read for its split names, because this list is only for error messages.
    splits = [f"{name}{year}" for name, year in sorted(_caption_files(folder))]
    return [*splits, *(("train", "restval", "val", "test") if _karpathy_file(folder) else ())]


def _caption_files(folder: Path) -> dict[tuple[str, str], Path]:
    files = {path: _CAPTION_FILE.fullmatch(path.name) for path in folder.glob(f"{_ANNOTATIONS}/captions_*.json")}
    return {(match[1], match[2]): path for path, match in files.items() if match}


def _karpathy_file(folder: Path) -> Path | None:
    places = (folder / _KARPATHY_FILE, folder / _ANNOTATIONS / _KARPATHY_FILE)
    return next((place for place in places if place.is_file()), None)


def _read_captions(folder: Path, names: list[str]) -> dict[str, Rows]:
    files, splits = _caption_files(folder), {}
    for name in names:
        fitting = sorted(key for key in files if name in (key[0], "".join(key)))
        if len(fitting) > 1:
            splits = " and ".join("".join(key) for key in fitting)
            raise ValueError(f"{folder}: the split {name!r} exists for several years. Choose one: {splits}.")
        if fitting:
            images = _image_folder(folder, "".join(fitting[0]), files[fitting[0]])
            splits[name] = _rows_of_captions(files[fitting[0]], images)
    return splits


def _rows_of_captions(path: Path, images: Path) -> Rows:
    content = read_json(path)
    licenses = _license_names(content, path)
    rows: dict[int, dict[str, Any]] = {}
    for where, entry in _entries(content, "images", path):
        number, name = _value(entry, "id", int, where), _value(entry, "file_name", str, where)
        rows[number] = _row(images / name, number, licenses.get(entry.get("license")))
    for where, entry in _entries(content, "annotations", path):
        number = _value(entry, "image_id", int, where)
        if number not in rows:
            raise ValueError(f"{where}['image_id'] is {number}, but no entry of 'images' has this 'id'.")
        rows[number]["caption"].append(_value(entry, "caption", str, where).strip())
    return _columns(rows.values(), path)


def _read_karpathy(folder: Path, names: list[str]) -> dict[str, Rows]:
    path = _karpathy_file(folder)
    if path is None:
        raise ValueError(f"{folder} has no {_KARPATHY_FILE}.")
    entries = list(_entries(read_json(path), "images", path))
    licenses, place = _stated_licenses(folder), _karpathy_place(folder)
    splits = {}
    for name in names:
        rows = []
        for where, entry in entries:
            if _value(entry, "split", str, where) == name:
                number = _value(entry, "cocoid", int, where)
                part, file = _value(entry, "filepath", str, where), _value(entry, "filename", str, where)
                row = _row(place(part, file, number), number, licenses.get(number))
                for sentence in _value(entry, "sentences", list, where):
                    row["caption"].append(_value(sentence, "raw", str, f"{where}['sentences']").strip())
                rows.append(row)
        if rows:
            splits[name] = _columns(rows, path)
    return splits


def _karpathy_place(folder: Path) -> Callable[[str, str, int], Path]:
    """Makes a function that locates Karpathy's images: by their 2014 name, otherwise by number among those of 2017."""
    tops = [top for top in (folder, folder / "images") if top.is_dir()]
    later = [top / name for top in tops for name in ("train2017", "val2017") if (top / name).is_dir()]
    # One listing replaces a lookup for each of 120,000 images, which takes minutes on a network disk.
    existing = {path.parent.name + "/" + path.name for top in tops for path in top.glob("*2014/COCO_*")}

    def place(part: str, file: str, number: int) -> Path:
        if f"{part}/{file}" not in existing:
            for images in later:
                if (images / f"{number:012d}.jpg").is_file():
                    return images / f"{number:012d}.jpg"
        return next((top / part / file for top in tops if (top / part).is_dir()), folder / part / file)

    return place


def _stated_licenses(folder: Path) -> dict[int, str]:
    # Read licenses from COCO's own files, if any, because Karpathy's file states none.
    licenses: dict[int, str] = {}
    for path in sorted(_caption_files(folder).values()):
        content = read_json(path)
        names = _license_names(content, path)
        for _, entry in _entries(content, "images", path):
            if entry.get("license") in names:
                licenses[entry["id"]] = names[entry["license"]]
    return licenses


def _license_names(content: Any, path: Path) -> dict[int, str]:
    if not isinstance(content, dict) or "licenses" not in content:
        return COCO_LICENSES
    entries = _entries(content, "licenses", path)
    return {_value(entry, "id", int, where): _value(entry, "name", str, where) for where, entry in entries}


def _image_folder(folder: Path, name: str, captions: Path) -> Path:
    places = (folder / name, folder / "images" / name)
    images = next((place for place in places if place.is_dir()), None)
    if images is None:
        raise ValueError(
            f"{places[0]} is missing: expected a folder with the images of {captions.name}, here or in images/."
        )
    return images


def _row(image: Path, number: int, license: str | None) -> dict[str, Any]:
    return {
        "image": {"path": str(image), "bytes": None},
        "caption": [],
        "image_id": str(number),
        "license": license,
        "source": "COCO",
    }


def _columns(rows: Iterable[dict[str, Any]], path: Path) -> Rows:
    rows = list(rows)
    if rows and not any(Path(row["image"]["path"]).is_file() for row in rows):
        first = rows[0]["image"]["path"]
        raise ValueError(
            f"{path}: none of its {len(rows):,} images exists; the first is {first}. Unpack them to its folder."
        )
    return {name: [row[name] for row in rows] for name in COCO_FEATURES}


def _entries(content: Any, key: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(content, dict) or not isinstance(content.get(key), list):
        keys = ", ".join(map(repr, content)) if isinstance(content, dict) else short_repr(content)
        raise ValueError(f"{path}: expected a list under the key {key!r}, as in COCO's files, but found: {keys}.")
    for number, entry in enumerate(content[key]):
        if not isinstance(entry, dict):
            raise ValueError(f"{path}: {key}[{number}] is {short_repr(entry)}, expected an object.")
        yield f"{path}: {key}[{number}]", entry


def _value(entry: Any, key: str, kind: type, where: str) -> Any:
    value = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{where}[{key!r}] is {short_repr(value)}, expected {_KINDS[kind]}.")
    return value


_KINDS = {int: "a whole number", str: "a string", list: "a list"}


SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
SPLITS = ("train", "validation", "val", "test")
_FOLDER_FEATURES = Features({"image": Image(), "caption": List(Value("string")), "image_id": Value("string")})
# Files that `datasets` reads as the captions of an image folder, or instead of its images.
_OTHERS = (".parquet", ".jsonl", ".csv", ".tar", ".arrow", ".zip")


def is_captioned_folder(folder: Path) -> bool:
    """Whether the first subfolder with images has texts next to them, and the folder has no other caption files."""
    if not folder.is_dir() or any(path.suffix in _OTHERS for path in folder.iterdir()):
        return False
    for _, names in _walk(folder):
        stems = {Path(name).stem for name in names if name.lower().endswith(SUFFIXES)}
        if stems:
            return any(name.endswith(".txt") and name[: -len(".txt")] in stems for name in names)
    return False


def has_images(folder: Path) -> bool:
    return any(name.lower().endswith(SUFFIXES) for _, names in _walk(folder) for name in names)


def captioned_splits(folder: Path) -> dict[str, Path]:
    """Returns the folders of the splits; without folders named like splits, everything is `train`."""
    return {name: folder / name for name in SPLITS if (folder / name).is_dir()} or {"train": folder}


def read_captioned_folder(folder: Path, names: Iterable[str]) -> DatasetDict:
    """Reads splits of a folder of images and texts; each line of a text file is a caption.

    An image without a text file has no caption; the code that reads the rows reports it.
    """
    places = captioned_splits(folder)
    return DatasetDict({name: _read(places[name]) for name in names if name in places})


def _read(folder: Path) -> Dataset:
    rows: dict[str, list[Any]] = {name: [] for name in _FOLDER_FEATURES}
    for place, names in _walk(folder):
        texts = set(names)
        for name in names:
            if name.lower().endswith(SUFFIXES):
                image, text = place / name, f"{Path(name).stem}.txt"
                rows["image"].append({"path": str(image), "bytes": None})
                rows["caption"].append(_captions(place / text) if text in texts else [])
                rows["image_id"].append(image.relative_to(folder).with_suffix("").as_posix())
    return Dataset.from_dict(rows, features=_FOLDER_FEATURES)


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    # Sort the names, because file systems list folders in different orders, which would change the order of rows.
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield Path(place), sorted(name for name in names if not name.startswith("."))


def _captions(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8.") from error
    return [line.strip() for line in lines if line.strip()]
