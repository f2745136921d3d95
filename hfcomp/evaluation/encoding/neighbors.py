"""Finds NegCLIP's hard images from the embeddings of a training set, for the column `neighbor_ids`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from datasets import Dataset, List, Value
from numpy.typing import NDArray

from hfcomp.checksums import with_checksum
from hfcomp.data.columns import require_columns
from hfcomp.data.image_ids import IMAGE_ID, photographs, with_image_ids
from hfcomp.data.loading import undecoded
from hfcomp.evaluation.cells import CellsWithout
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.negatives.neighbors import EXACT_ROWS, default_method, neighbor_columns
from hfcomp.store import NEIGHBORS, mark_used, read_document

ComparedBy = Literal["image", "caption"]
FEATURES = {IMAGE_ID: Value("string"), "neighbor_ids": List(Value("string"))}


def with_neighbors(
    dataset: Dataset,
    *,
    place: str | Path,
    number: int,
    log: Callable[[str], None],
    by: ComparedBy = "image",
    cache: EmbeddingCache | None = None,
    device: str | None = None,
    damaged: Collection[int] = (),
) -> Dataset:
    """Adds the column `neighbor_ids`, and `image_id` if missing, by the rule of [`photographs`].

    Copies of one file are never neighbors, whatever their ids. When images are compared by captions, images with equal
    captions are not neighbors either. Every process gets the same columns; with a cache on disk, later processes read
    what the first one computed.

    Args:
        dataset: Dataset in the column contract.
        place: Hub id or folder of the embedding model.
        number: Number of neighbors per image; NegCLIP uses 3.
        log: Function that receives a line on what was compared and how.
        by: `image`, or `caption` to find images with similar captions.
        cache: Cache for embeddings and neighbors.
        device: Device for the model. Defaults to a GPU if available.
        damaged: Rows whose image cannot be read. They get no neighbors.

    Raises:
        ValueError: If a column or image is missing, a row has no id, or `by` has another value.
    """
    if by not in get_args(ComparedBy):
        raise ValueError(f"by: found {by!r}, expected one of {', '.join(get_args(ComparedBy))}.")
    has_ids = IMAGE_ID in dataset.column_names
    require_columns(dataset, [by] if has_ids else dict.fromkeys((by, "image")), needed_by="the search for neighbors")
    embedder = Embedder(place, cache=cache, device=device)
    ids = photographs(dataset)
    if by == "image":
        indexed = embedder.index_images(CellsWithout(undecoded(dataset)["image"], damaged), progress=True)
    else:
        indexed = embedder.index_texts(dataset["caption"][:], progress=True)
    kept = np.setdiff1d(np.arange(len(dataset)), list(damaged))
    if (indexed.index[kept] < 0).any():
        row = int(kept[np.argmax(indexed.index[kept] < 0)])
        raise ValueError(f"column {by!r}, row {row} is empty, so it has no neighbors. Remove such rows.")
    if None in ids:
        raise ValueError(
            f"column {IMAGE_ID!r}, row {ids.index(None)} is empty, and the row has no image. Give it one of the two."
        )
    own_ids = [ids[row] for row in kept]
    near: list[list[str]] = [[] for _ in ids]
    found_near = _cached_neighbors(cache, indexed.take(kept), indexed.index[kept], own_ids, number)
    for row, neighbors in zip(kept.tolist(), found_near, strict=True):
        # Damaged rows keep an empty list.
        near[row] = neighbors
    # Training needs this memory next.
    embedder.release()
    for note in cache.notes if cache else ():
        log(note)
    images = len(set(own_ids))
    most = min(number, images - 1)
    wanted = f" ({number} were requested, but there are no more images)" if most < number else ""
    log(f"{images:,} images, each with the {most} nearest{wanted} by {by} ({place}, {_describe_method(images)})")
    if "neighbor_ids" in dataset.column_names:
        log("these neighbors replace the dataset's own neighbor_ids")
        dataset = dataset.remove_columns("neighbor_ids")
    dataset = with_image_ids(dataset, ids)
    return dataset.add_column("neighbor_ids", near, feature=FEATURES["neighbor_ids"])


def _describe_method(images: int) -> str:
    method = default_method(images)
    slow = method == "exact" and images > EXACT_ROWS
    return f"{method}; faster with FAISS: pip install 'hfcomp[neighbors]'" if slow else method


def _cached_neighbors(
    cache: EmbeddingCache | None, vectors: NDArray[np.float32], same: NDArray[np.int64], ids: list[str], number: int
) -> list[list[str]]:
    """Returns the neighbors, from the cache if the same search ran before."""
    if cache is None or cache.folder is None:
        return neighbor_columns(vectors, ids, number=number, groups=same)["neighbor_ids"]
    # The key includes the vectors themselves, which change with the model and with every pixel.
    wanted = hashlib.sha256(json.dumps([number, ids]).encode())
    wanted.update(vectors.tobytes() + same.tobytes())
    path = cache.folder / NEIGHBORS / f"{wanted.hexdigest()[:32]}.json"
    with suppress(OSError, KeyError, TypeError):  # the folder cannot be read, or the file holds something else
        near = read_document(path)["neighbor_ids"]
        mark_used(path)
        cache.trim()
        return near
    near = neighbor_columns(vectors, ids, number=number, groups=same)["neighbor_ids"]
    cache.write(path, json.dumps(with_checksum({"neighbor_ids": near})).encode())
    cache.trim()
    return near
