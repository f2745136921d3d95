"""Encoders that know which texts are true of an image, and datasets on disk that benchmarks ask the Hub for."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from hfcomp.evaluation import hub
from hfcomp.evaluation.cells import Fitted
from hfcomp.evaluation.encoding.embed import Indexed
from hfcomp.evaluation.engine import Report, run_benchmark, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Benchmark, Folders
from tests import tiny


@cache
def photo(number: int) -> bytes:
    """The file of an image like no other."""
    stream = io.BytesIO()
    tiny.image(number).save(stream, format="PNG")
    return stream.getvalue()


def content(cell: Any) -> bytes:
    """The file behind a cell."""
    cell = cell.cell if isinstance(cell, Fitted) else cell
    if isinstance(cell, dict):
        cell = cell["bytes"] or cell["path"]
    return cell if isinstance(cell, bytes) else Path(cell).read_bytes()


class Fake:
    """An encoder of two functions, from the number of a `photo` and from a text to their vectors."""

    def __init__(self, photos: int, image: Callable[[int], np.ndarray], text: Callable[[str], np.ndarray]) -> None:
        self._number = {photo(number): number for number in range(photos)}
        self._image, self._text = image, text

    def index_images(self, images, *, column="image", progress=False) -> Indexed:
        index = np.array([self._number[content(cell)] for cell in images])
        vectors = np.stack([self._image(number) for number in range(len(self._number))])
        return Indexed(vectors.astype(np.float32), index, 0, len(vectors))

    def index_texts(self, texts, *, progress=False) -> Indexed:
        vectors = np.stack([self._text(text) for text in texts])
        return Indexed(vectors.astype(np.float32), np.arange(len(texts)), 0, len(texts))


def knowing(true: Mapping[int, Iterable[str]], right: float = 1.0, wrong: float = 0.0) -> Fake:
    """Scores a text `right` with each image that it is `true` of, and `wrong` with the others."""
    texts = {number: set(own) for number, own in true.items()}
    one_hot = np.eye(len(true))
    return Fake(
        len(true),
        lambda number: one_hot[number],
        lambda text: np.array([right if text in texts[number] else wrong for number in range(len(true))]),
    )


def constant(photos: int) -> Fake:
    """The same vector for everything."""
    same = np.full(67, 67**-0.5)
    return Fake(photos, lambda number: same, lambda text: same)


def random(photos: int, seed: int = 0) -> Fake:
    """Another direction for every image and text."""
    generator = np.random.default_rng(seed)

    @cache
    def draw_vector(key: int | str) -> np.ndarray:
        vector = generator.standard_normal(64)
        return vector / np.linalg.norm(vector)

    return Fake(photos, draw_vector, draw_vector)


def run(benchmark: Benchmark, folder: Path | None, encoder: Any, **own: Path) -> Report:
    """A benchmark on a folder, or on the Hub where there is none."""
    folders = Folders(own=own if folder is None else {benchmark.name: folder, **own})
    return run_benchmark(benchmark, validate(benchmark, load_items(benchmark, folders)), encoder)


def means(report: Report) -> dict[tuple[str, str], float]:
    """Mean values by subset and metric."""
    return report.items.groupby(["subset", "metric"])["value"].mean().to_dict()


def parquet(folder: Path, name: str, columns: Mapping[str, Any], images: str | None = None) -> Path:
    """A dataset in the Hub's layout: one Parquet file, the images' bytes inside.

    Args:
        folder: of the repository.
        name: of the file in `data/`, without its ending.
        columns: of the rows; images as files' bytes.
        images: which column holds them.
    """
    rows = datasets.Dataset.from_dict(
        {
            key: [{"bytes": cell, "path": f"{number}.png"} for number, cell in enumerate(values)]
            if key == images
            else values
            for key, values in columns.items()
        }
    )
    if images is not None:
        rows = rows.cast_column(images, datasets.Image())
    (folder / "data").mkdir(parents=True, exist_ok=True)
    rows.to_parquet(folder / "data" / f"{name}.parquet")
    return folder


class HubOnDisk:
    """Takes the place of `load_dataset`: ids lead to folders, and `asked` keeps what was asked for."""

    def __init__(self, monkeypatch, **folders: Path) -> None:
        self.folders: dict[str, Path] = folders
        self.asked: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(hub, "load_dataset", self.load)
        monkeypatch.setattr(hub, "_newest", lambda repo: None)

    def load(self, name: str, **options: Any) -> datasets.Dataset:
        if Path(name).is_dir():
            return datasets.load_dataset(name, **options)
        self.asked.append((name, dict(options)))
        if name not in self.folders:
            raise datasets.exceptions.DatasetNotFoundError(f"{name} does not exist")
        options.pop("revision")
        return datasets.load_dataset(str(self.folders[name]), **options)
