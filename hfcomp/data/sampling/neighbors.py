"""NegCLIP's hard images: every row of a batch is followed by rows with similar images."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hfcomp.data.sampling.draws import EpochSampler

NEIGHBOR_COLUMNS = ("neighbor_ids", "image_id")


@dataclass(frozen=True)
class Neighbors:
    """Nearest images of each row: the columns `neighbor_ids`, `image_id` and `caption` as numbers.

    Attributes:
        near: Nearest images `[n, m]` of each row, the nearest first; padded with -1.
        image: Image `[n]` of each row.
        caption: Caption number `[n]` of each row, equal for equal captions.
        unknown: Number of entries in `neighbor_ids` that are not the `image_id` of any row; they are left out.
    """

    near: NDArray[np.int64]
    image: NDArray[np.int64]
    caption: NDArray[np.int64]
    unknown: int

    @classmethod
    def from_columns(
        cls, neighbor_ids: Sequence[list[str] | None], image_ids: Sequence[str], captions: Sequence[Any]
    ) -> Neighbors:
        """Builds neighbors from the columns of a training set, without a row's own image and without repetitions.

        The nearest come first. Two lists of captions count as equal if they contain the same captions in the
        same order.
        """
        if None in image_ids:
            row = list(image_ids).index(None)
            raise ValueError(
                f"column 'image_id', row {row}: found nothing, expected an image id. Every row needs an image id, "
                "and rows that show the same image need the same id."
            )
        images = _number_values(map(str, image_ids))
        image = np.array([images[str(image_id)] for image_id in image_ids], dtype=np.int64)
        near, unknown = [], 0
        for row, ids in enumerate(neighbor_ids):
            if ids is not None and not isinstance(ids, list | tuple):
                raise ValueError(
                    f"column 'neighbor_ids', row {row}: found {ids!r}, expected a list of image_id values."
                )
            known = dict.fromkeys(images[str(other)] for other in ids or () if str(other) in images)
            unknown += sum(str(other) not in images for other in ids or ())
            known.pop(int(image[row]), None)
            near.append(list(known))
        if not any(near):
            example = next((ids[0] for ids in neighbor_ids if ids), None)
            raise ValueError(
                "column 'neighbor_ids': no row has a neighbor in the training set. Expected lists of values of the "
                f"column 'image_id', such as {image_ids[0]!r}, but found {example!r}."
            )
        table = np.full((len(near), max(map(len, near))), -1, dtype=np.int64)
        for row, images_of_row in enumerate(near):
            table[row, : len(images_of_row)] = images_of_row
        captions = [tuple(caption) if isinstance(caption, list) else caption for caption in captions]
        texts = _number_values(captions)
        return cls(table, image, np.array([texts[caption] for caption in captions], dtype=np.int64), unknown)

    @property
    def num_without_neighbors(self) -> int:
        return int((self.near < 0).all(axis=1).sum())


def check_batch_images(images: int, batch_size: int, number: int, setting: str) -> None:
    if images < batch_size * (1 + number):
        raise ValueError(
            f"the training set has {images} images, fewer than the {batch_size * (1 + number)} images of a batch of "
            f"{batch_size} rows plus their neighbors ({number} per row). Lower {setting} to {images // (1 + number)} "
            "or less."
        )


def _number_values(values: Iterable[Any]) -> dict[Any, int]:
    numbers: dict[Any, int] = {}
    for value in values:
        numbers.setdefault(value, len(numbers))
    return numbers


class NeighborOrder(EpochSampler):
    """An order of rows in which each row is followed by rows sampled from its neighbors.

    The added rows depend on `seed`, the epoch and the rows of the global batch, so they are the same on any number of
    processes and workers. A row whose image or caption is already in the global batch would be its own negative. It is
    skipped: another neighbor is sampled or, if none is left, any row whose image is not in the batch. If an image has
    several rows, one of them is sampled.

    Attributes:
        num_added: Number of rows added so far.
        unrelated: Number of added rows that are not neighbors.

    Raises:
        ValueError: If there are fewer images than in a global batch with its added rows.
    """

    def __init__(
        self, order: torch.utils.data.Sampler[int], neighbors: Neighbors, *, number: int, batch_size: int, seed: int
    ) -> None:
        self.order, self.neighbors, self.number, self.batch_size = order, neighbors, number, batch_size
        self.seed = seed
        self.num_added = self.unrelated = 0
        images = int(neighbors.image.max()) + 1
        check_batch_images(images, batch_size, number, "per_device_train_batch_size")
        # The rows of image i are _rows[_start[i] : _start[i + 1]], without a list for each of millions of images.
        self._rows = np.argsort(neighbors.image, kind="stable")
        self._start = np.searchsorted(neighbors.image[self._rows], np.arange(images + 1))

    def __len__(self) -> int:
        return len(self.order) * (1 + self.number)

    def __iter__(self) -> Iterator[int]:
        epoch, rows = self.epoch, iter(self.order)
        while batch := list(islice(rows, self.batch_size)):
            yield from self._with_neighbors(batch, epoch)

    def _with_neighbors(self, batch: list[int], epoch: int) -> Iterator[int]:
        images = set(self.neighbors.image[batch].tolist())
        captions = set(self.neighbors.caption[batch].tolist())
        for row in batch:
            yield row
            # Each row has its own generator, so its draws do not depend on how many draws earlier rows needed. The
            # spelling is part of the seed. Changing it would change every draw.
            draw = random.Random(f"neighbours {self.seed} {epoch} {row}")
            near = [image for image in self.neighbors.near[row].tolist() if image >= 0]
            near = draw.sample(near, len(near))
            for _ in range(self.number):
                other = self._neighbor(draw, near, images, captions)
                self.num_added += 1
                if other is None:
                    self.unrelated += 1
                    other = self._draw_unrelated_row(draw, images)
                images.add(int(self.neighbors.image[other]))
                captions.add(int(self.neighbors.caption[other]))
                yield other

    def _neighbor(self, draw: random.Random, near: list[int], images: set[int], captions: set[int]) -> int | None:
        for image in near:
            if image not in images:
                rows = self._rows[self._start[image] : self._start[image + 1]]
                free = [row for row in rows.tolist() if int(self.neighbors.caption[row]) not in captions]
                if free:
                    return draw.choice(free)
        return None

    def _draw_unrelated_row(self, draw: random.Random, images: set[int]) -> int:
        # This loop ends, because the constructor checked that there are more images than a batch shows.
        while int(self.neighbors.image[row := draw.randrange(len(self._rows))]) in images:
            pass
        return row
