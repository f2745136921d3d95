"""Small sets in the layout of CLIP_benchmark, and encoders that read an image's class off its first pixel."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hfcomp.data.images import decode_image
from hfcomp.evaluation.encoding.embed import Indexed
from hfcomp.evaluation.engine import run_benchmark, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Folders
from hfcomp.statistics import summarize

FORMATS = {"webp": {"format": "WEBP", "lossless": True}, "png": {"format": "PNG"}}
TEST, TRAIN = 0, 255
CLASS_NAMES = ("ball", "cone", "cube", "ring")


def encode_image(mark: int, seed: int, split: int = TEST, ending: str = "png") -> bytes:
    """An image of 4 x 4 whose first pixel holds `mark`, a number for `seed`, and its split."""
    pixels = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    pixels[0, 0] = mark, seed % 256, split
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, **FORMATS[ending])
    return stream.getvalue()


def write_tar(path: Path, members: Mapping[str, bytes]) -> None:
    """A tar archive of these files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def write_split(folder: Path, labels: Sequence[int], split: int, *, shards: int = 2, ending: str = "png") -> None:
    """One split: `0.tar` and so on, and `nshards.txt`."""
    for number, rows in enumerate(np.array_split(np.arange(len(labels)), shards)):
        members = {}
        for row in map(int, rows):
            members[f"s{row:07d}.cls"] = str(labels[row]).encode()
            members[f"s{row:07d}.{ending}"] = encode_image(labels[row], row + split * 1000, split, ending)
        write_tar(folder / f"{number}.tar", members)
    (folder / "nshards.txt").write_text(f"{shards}\n")


def write_set(
    folder: Path,
    test: Sequence[int],
    train: Sequence[int] | None = None,
    *,
    classes: Sequence[str] = CLASS_NAMES,
    ending: str = "png",
) -> Path:
    """A set with these labels, its class names and two templates, whose words the tiny tokenizers know."""
    write_split(folder / "test", test, TEST, ending=ending)
    if train is not None:
        write_split(folder / "train", train, TRAIN, ending=ending)
    (folder / "classnames.txt").write_text("".join(f"{name}\n" for name in classes))
    (folder / "zeroshot_classification_templates.txt").write_text("a {c} here\none {c}\n")
    return folder


class FirstPixelEncoder:
    """Encodes images and texts by two functions that return a vector."""

    def __init__(self, of_image: Callable[[np.ndarray], np.ndarray], of_text: Callable[[str], np.ndarray]) -> None:
        self.of_image = of_image
        self.of_text = of_text

    def index_images(self, images, *, column="image", progress=False) -> Indexed:
        vectors = [None if cell is None else self.of_image(np.asarray(decode_image(cell))[0, 0]) for cell in images]
        return _index(vectors)

    def index_texts(self, texts, *, progress=False) -> Indexed:
        return _index([self.of_text(text) for text in texts])


def _index(vectors: list[np.ndarray | None]) -> Indexed:
    there = [vector is not None for vector in vectors]
    index = np.where(there, np.cumsum(there) - 1, -1).astype(np.int64)
    rows = np.array([vector for vector in vectors if vector is not None], dtype=np.float32)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True) if len(rows) else np.zeros((0, 8), dtype=np.float32)
    return Indexed(rows, index, 0, len(rows))


def one_hot(label: int, width: int = 8) -> np.ndarray:
    """`[width]`."""
    return np.eye(width)[int(label)]


def class_encoders(classes: Sequence[str] = CLASS_NAMES) -> dict[str, FirstPixelEncoder]:
    """A perfect, an inverted, a constant and a random encoder of classes.

    The inverted one takes every test image for one of the next class; a sign would not do, as a probe turns it round.
    """
    random = np.random.default_rng(0)

    def text(prompt: str) -> np.ndarray:
        return one_hot(next(label for label, name in enumerate(classes) if name in prompt))

    def shift(pixel: np.ndarray) -> np.ndarray:
        return one_hot((pixel[0] + (pixel[2] == TEST)) % len(classes))

    return {
        "perfect": FirstPixelEncoder(lambda pixel: one_hot(pixel[0]), text),
        "inverted": FirstPixelEncoder(shift, text),
        "constant": FirstPixelEncoder(lambda pixel: np.ones(8), lambda prompt: np.ones(8)),
        "random": FirstPixelEncoder(lambda pixel: random.normal(size=8), lambda prompt: random.normal(size=8)),
    }


def check_known_encoders(benchmark, folder: Path, classes: Sequence[str]) -> None:
    """Checks 8 equally frequent classes: a perfect encoder is always right, an inverted or constant one never."""
    results = {name: means(benchmark, folder, encoder) for name, encoder in class_encoders(classes).items()}
    assert list(results["perfect"]) == ["accuracy", "mean per class", "top-5 accuracy"]
    assert set(results["perfect"].values()) == {1.0}
    assert results["inverted"]["accuracy"] == results["inverted"]["mean per class"] == 0.0
    assert set(results["constant"].values()) == {0.0}
    assert results["random"]["accuracy"] == pytest.approx(1 / 8, abs=0.08)
    assert results["random"]["top-5 accuracy"] == pytest.approx(5 / 8, abs=0.12)


def means(benchmark, folder: Path, encoder) -> dict[str, float]:
    """Mean value of each metric on a local folder."""
    items = validate(benchmark, load_items(benchmark, Folders(own={benchmark.name: folder})))
    table = run_benchmark(benchmark, items, encoder).items
    return {line["metric"]: line["models"]["model"]["value"] for line in summarize(table, intervals=False)}
