"""What tests of whole benchmarks share: encoders whose scores are known, images and datasets on disk."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from hfcomp.data.images import decode_image
from hfcomp.evaluation import hub
from hfcomp.evaluation.cells import Crop, is_missing
from hfcomp.evaluation.encoding.embed import Indexed
from hfcomp.evaluation.engine import Report, run_benchmark, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Folders, Origin, Unavailable
from hfcomp.statistics.summary import summarize
from tests.evaluation.benchmarks import oracle


class Sighted:
    """An encoder of `oracle` that also takes images which are cut out, in an archive, or not there."""

    def __init__(self, encoder: oracle.Fake) -> None:
        self._encoder = encoder

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        cells = list(images)
        there = [row for row, cell in enumerate(cells) if not is_missing(cell)]
        embeddings = self._encoder.index_images([_png(cells[row]) for row in there])
        index = np.full(len(cells), -1)
        index[there] = embeddings.index
        return replace(embeddings, index=index)

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        return self._encoder.index_texts(texts)


class Drawn:
    """Another random direction for every image, by its bytes, and every text."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)

    def index_images(self, images: Sequence[Any], *, column: str = "image", progress: bool = False) -> Indexed:
        return self._draw([cell["bytes"] for cell in images])

    def index_texts(self, texts: Sequence[str], *, progress: bool = False) -> Indexed:
        return self._draw(list(texts))

    def _draw(self, keys: list[Any]) -> Indexed:
        number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        vectors = self._generator.standard_normal((len(number), 64)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return Indexed(vectors, np.array([number[key] for key in keys]), 0, len(number))


def _png(cell: Any) -> bytes:
    image = decode_image(cell.cell).crop(cell.box) if isinstance(cell, Crop) else decode_image(cell)
    stream = io.BytesIO()
    image.save(stream, format="PNG")
    return stream.getvalue()


def frame_photo(number: int, box: tuple[int, int]) -> bytes:
    """The file of a larger image that shows `photo(number)` with its upper left corner at `box`."""
    ground = Image.new("RGB", (100, 80), "grey")
    ground.paste(Image.open(io.BytesIO(oracle.photo(number))), box)
    stream = io.BytesIO()
    ground.save(stream, format="PNG")
    return stream.getvalue()


def items(benchmark: Benchmark, folder: Path | None, **own: Path) -> BenchmarkData:
    """The checked items of a benchmark's folder, or of the Hub where there is none."""
    folders = Folders(own=own if folder is None else {benchmark.name: folder, **own})
    return validate(benchmark, load_items(benchmark, folders))


def check_known_scorers(benchmark: Benchmark, rows: BenchmarkData, true: Mapping[int, Sequence[str]]) -> None:
    """A perfect scorer gets everything, an inverted and a constant one nothing, the constant one by ties."""
    perfect, inverted, constant = (
        run_benchmark(benchmark, rows, Sighted(encoder)).items
        for encoder in (oracle.knowing(true), oracle.knowing(true, 0, 1), oracle.constant(len(true)))
    )
    assert (perfect["value"] == 1).all() and not perfect["tie"].any()
    assert (inverted["value"] == 0).all()
    assert (constant["value"] == 0).all() and constant["tie"].all()


def check_folder_and_hub(
    benchmark: Benchmark, folder: Path, repository: str, true: Mapping[int, Sequence[str]], monkeypatch
) -> None:
    """`check_known_scorers` of a folder in the Hub's layout, and of the split `test` of the repository."""
    check_known_scorers(benchmark, items(benchmark, folder), true)
    hub = oracle.HubOnDisk(monkeypatch, **{repository: folder})
    check_known_scorers(benchmark, items(benchmark, None), true)
    assert [(name, options["split"]) for name, options in hub.asked] == [(repository, "test")]


def numbered_texts(*lists: str, number: int = 1500) -> dict[str, list[Any]]:
    """A caption for each row, and in each of the lists one text that no other row has."""
    return {"caption": [f"a {row}" for row in range(number)]} | {
        name: [[f"{name} {row}"] for row in range(number)] for name in lists
    }


def check_chance(benchmark: Benchmark, columns: Mapping[str, list[Any]], number: int = 1500) -> None:
    """A random scorer is at the declared chance in every metric, within four standard errors.

    Args:
        benchmark: its protocol is what is tested.
        columns: the texts of the rows.
        number: of rows, each with images of its own.
    """
    images = {
        column: [{"bytes": f"{column} {row}".encode(), "path": None} for row in range(number)]
        for column in benchmark.protocol.images
    }
    rows = validate(
        benchmark, BenchmarkData(datasets.Dataset.from_dict(dict(columns)), Origin("memory"), images=images)
    )
    for metric, part in run_benchmark(benchmark, rows, Drawn()).items.groupby("metric"):
        chance = part["chance"].mean()
        error = (chance * (1 - chance) / number) ** 0.5
        assert part["value"].mean() == pytest.approx(chance, abs=4 * error), metric


def scores(benchmark: Benchmark, report: Report) -> dict[tuple[str, str], float]:
    """The lines of a benchmark, averages among them: subset and metric to value."""
    lines = summarize(report.items, models=["model"], references=[], averages={benchmark.title: benchmark.averages})
    return {(line["subset"], line["metric"]): line["models"]["model"]["value"] for line in lines}


def photos(folder: Path, names: Mapping[str, int]) -> Path:
    """A folder of photos by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, number in names.items():
        (folder / name).write_bytes(oracle.photo(number))
    return folder


def hub_folder(
    folder: Path, split: str, columns: Mapping[str, list[Any]], images: Sequence[str] = (), named: bool = True
) -> Path:
    """A dataset in the Hub's layout: a Parquet file whose image columns hold the files' bytes.

    Args:
        folder: of the repository.
        split: of the only file.
        columns: of the rows; images as bytes.
        images: columns of images.
        named: whether images have file names.
    """

    def cell(content: bytes | None, column: str, row: int) -> dict[str, Any] | None:
        return None if content is None else {"bytes": content, "path": f"{column}-{row}.png" if named else None}

    cells = {
        column: [cell(content, column, row) for row, content in enumerate(values)] if column in images else values
        for column, values in columns.items()
    }
    rows = datasets.Dataset.from_dict(cells)
    for column in images:
        rows = rows.cast_column(column, datasets.Image())
    (folder / "data").mkdir(parents=True)
    rows.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


def repositories(monkeypatch: pytest.MonkeyPatch, folders: Mapping[str, Path]) -> list[tuple[str, tuple[str, ...]]]:
    """Lets addresses of repositories lead to folders; the list keeps what was asked for."""
    asked: list[tuple[str, tuple[str, ...]]] = []

    def download(web: str, names: Sequence[str]) -> Path:
        asked.append((web, tuple(names)))
        if web not in folders:
            raise Unavailable(f"{web} cannot be reached (ConnectionError).", "")
        return folders[web]

    monkeypatch.setattr(hub, "download_files", download)
    return asked
