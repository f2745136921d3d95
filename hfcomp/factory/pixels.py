"""Builds pixel stores: images of a dataset, decoded and resized once for all later epochs and runs of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

from hfcomp.data.formats.image_files import check_image_files
from hfcomp.data.images import Unreadable, decode_image, is_tiny
from hfcomp.data.known_names import parse_column_names
from hfcomp.data.loading import TrainingRows, load_training_set
from hfcomp.data.pixels import PixelTransform
from hfcomp.data.pixels.store import PIXELS, ImageKeys, PixelStore
from hfcomp.data.pixels.store_writer import StoreWriter
from hfcomp.data.urls import UrlAccess
from hfcomp.factory.pixel_options import PixelOptions
from hfcomp.modeling import load_processor
from hfcomp.reporting.format import count_text
from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.store import size_text

COLUMNS = ("image", "negative_image")
ROWS_PER_CHUNK = 32
# Number of unreadable images that a report names.
SHOWN = 20


@dataclass
class BuiltPixels:
    """Result of a build.

    Attributes:
        cells: Number of images read from rows, without nulls.
        made: Number of images decoded and added.
        images: Number of images in the store.
        size: Bytes of pixels in the store.
        unreadable: Column, row and reason of each image that is left out. Training rejects its row.
    """

    folder: Path
    cells: int = 0
    made: int = 0
    images: int = 0
    size: int = 0
    unreadable: list[tuple[str, int, str]] = field(default_factory=list)

    def report(self) -> Report:
        """The counts, and the first unreadable images."""
        lines = [
            f"{self.cells:,} images read, {self.made:,} decoded and added",
            f"{self.images:,} distinct images ({size_text(self.size)}) in {self.folder}",
        ]
        if self.unreadable:
            lines.append(f"{len(self.unreadable):,} unreadable images are left out; training will reject their rows")
        rows = [[column, f"{row:,}", reason] for column, row, reason in self.unreadable[:SHOWN]]
        title = f"First {len(rows)} of {len(self.unreadable):,} unreadable images"
        parts = [Table(title, ["column", "row", "reason"], rows)] if rows else []
        return Report("", sections=[Section("", [*parts, Lines(lines, "Images", whole=True)])])


def build_pixels(options: PixelOptions, *, log: Callable[[str], None] = print, progress: bool = False) -> BuiltPixels:
    """Builds a pixel store or adds to one. Known images are not decoded again, so the same call resumes."""
    processor = load_processor(options.model, argument="model")
    transform = PixelTransform.from_processor(processor, max_pixels=options.max_image_pixels)
    names = parse_column_names(options.column_names)
    dataset = load_training_set(options.source, split=options.split, config=options.config, column_names=names)
    columns = [name for name in COLUMNS if name in dataset.column_names]
    if not columns:
        raise ValueError(
            f"{options.source} has no column 'image'; it has: {', '.join(dataset.column_names)}. Name it with "
            "--column_names image=<its name>."
        )
    check_image_files(dataset, columns, one_is_enough=True)
    log(f"{count_text(len(dataset), 'row')} from {options.source}")
    if options.limit is not None:
        dataset = dataset.select(range(min(options.limit, len(dataset))))
    with StoreWriter(options.output, transform, log=log) as writer:
        chunks = _Chunks(TrainingRows(dataset, columns), columns, transform, writer.store, options)
        built = BuiltPixels(Path(options.output))
        # Without a batch size a chunk is passed on unchanged; it already is a batch.
        loader = DataLoader(chunks, batch_size=None, num_workers=options.num_workers, collate_fn=_identity)
        for chunk in tqdm(iter(loader), total=len(chunks), disable=not progress, unit="chunk"):
            _add_chunk(built, writer, chunk)
        built.images = writer.images
    built.size = (built.folder / PIXELS).stat().st_size if built.images else 0
    return built


def verify_pixels(folder: Path, log: Callable[[str], None] = print) -> None:
    """Checks all images of a store."""
    store = PixelStore(folder)
    store.verify()
    log(f"{len(store):,} images in {folder} are intact")


@dataclass(frozen=True)
class _Chunk:
    """The images of some rows: keys, place in `pixels` (-1 for a known image) and `tiny` of each."""

    keys: Sequence[tuple[list[bytes], int, bool]]
    pixels: torch.Tensor
    unreadable: Sequence[tuple[str, int, str]]


class _Chunks(torch.utils.data.Dataset):
    """The rows of a dataset in chunks, each with the pixels of the images that are not in the store yet."""

    def __init__(
        self,
        rows: TrainingRows,
        columns: Sequence[str],
        transform: PixelTransform,
        store: PixelStore,
        options: PixelOptions,
    ) -> None:
        self.rows, self.columns, self.transform, self.store = rows, columns, transform, store
        self.urls = UrlAccess.from_settings(options.allow_urls, options.url_timeout)
        self.max_pixels = options.max_image_pixels
        self.seen: set[bytes] = set()  # keys of this process, whose chunks reach the writer in order

    def __len__(self) -> int:
        return -(-len(self.rows) // ROWS_PER_CHUNK)

    def __getitem__(self, number: int) -> _Chunk:
        start = number * ROWS_PER_CHUNK
        keys, pixels, unreadable = [], [], []
        for row in self.rows.__getitems__(list(range(start, min(len(self.rows), start + ROWS_PER_CHUNK)))):
            for column in self.columns:
                if row[column] is None:
                    continue
                try:
                    image_keys, image = self._image(row[column], f"column {column!r}, row {row['row']}")
                except Unreadable as error:
                    unreadable.append((column, row["row"], str(error)))
                    continue
                keys.append((image_keys, -1 if image is None else len(pixels), image is not None and image[1]))
                if image is not None:
                    pixels.append(image[0])
        # One tensor per chunk, which a worker passes in shared memory.
        stacked = torch.cat(pixels) if pixels else torch.empty((0, 3, *self.transform.size), dtype=torch.uint8)
        return _Chunk(keys, stacked, unreadable)

    def _image(self, value: Any, where: str) -> tuple[list[bytes], tuple[torch.Tensor, bool] | None]:
        """The keys of an image and, if no key is known, its pixels `[1, 3, H, W]` and whether it is tiny."""
        keys = ImageKeys(value, urls=self.urls)
        # The key of a place is known without reading the file. Only if it is not in the store, the file is read and
        # hashed by its content.
        place = keys.place_key()
        if place is not None and self._is_known(place):
            return [place], None
        content = keys.content_key()
        known_as = [key for key in (place, content) if key is not None]
        image = None
        if content is None or not self._is_known(content):
            decoded = decode_image(keys.value, where=where, max_pixels=self.max_pixels, urls=self.urls)
            image = self.transform([decoded], where=[where]), is_tiny(decoded)
        # Keys that are not in the store yet are kept too, because an image may occur in many rows.
        self.seen.update(known_as)
        return known_as, image

    def _is_known(self, key: bytes) -> bool:
        return key in self.seen or self.store.find(key) >= 0


def _identity(chunk: _Chunk) -> _Chunk:
    return chunk


def _add_chunk(built: BuiltPixels, writer: StoreWriter, chunk: _Chunk) -> None:
    pixels: np.ndarray = chunk.pixels.numpy()
    for keys, place, tiny in chunk.keys:
        built.made += writer.add(keys, None if place < 0 else pixels[place].copy(), tiny=tiny)
    built.cells += len(chunk.keys) + len(chunk.unreadable)
    built.unreadable += chunk.unreadable
