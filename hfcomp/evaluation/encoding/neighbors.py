"""NegCLIP's hard images: the column `neighbor_ids`, from the embeddings of a training set."""

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
    """Adds `neighbor_ids`, and `image_id` where rows have none: by the rule of [`photographs`].

    Copies of one file are never neighbors, whatever their ids; nor, by captions, images with equal captions.
    Every process gets the same columns; with a cache on disk the second one reads what the first one computed.

    Args:
        dataset: in the column contract.
        place: Hub id or folder of the embedding model.
        number: neighbors of each image; NegCLIP has 3.
        log: receives a line about what was compared, and how.
        by: `image`, or `caption` for images with similar captions.
        cache: of embeddings and neighbors.
        device: of the model; by default a GPU when there is one.
        damaged: rows whose image is not read, and which get no neighbors.

    Raises:
        ValueError: for a missing column or image, a row without an id, or another `by`.
    """
    if by not in get_args(ComparedBy):
        raise ValueError(f"by={by!r}: expected one of {', '.join(get_args(ComparedBy))}.")
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
        raise ValueError(f"column {by!r}, row {row}: found nothing, which has no neighbors. Remove such rows.")
    if None in ids:
        raise ValueError(
            f"column {IMAGE_ID!r}, row {ids.index(None)}: found nothing, and no image. Give the row one of the two."
        )
    own_ids = [ids[row] for row in kept]
    near: list[list[str]] = [[] for _ in ids]
    found_near = _cached_neighbors(cache, indexed.take(kept), indexed.index[kept], own_ids, number)
    for row, neighbors in zip(kept.tolist(), found_near, strict=True):
        # Damaged rows keep an empty list.
        near[row] = neighbors
    # Training needs the memory next.
    embedder.release()
    for note in cache.notes if cache else ():
        log(note)
    images = len(set(own_ids))
    most = min(number, images - 1)
    wanted = f" ({number} were requested, but there are no more images)" if most < number else ""
    log(f"{images:,} images, each with the {most} nearest{wanted} by {by} ({place}, {_how(images)})")
    if "neighbor_ids" in dataset.column_names:
        log("they replace the dataset's own neighbor_ids")
        dataset = dataset.remove_columns("neighbor_ids")
    dataset = with_image_ids(dataset, ids)
    return dataset.add_column("neighbor_ids", near, feature=FEATURES["neighbor_ids"])


def _how(images: int) -> str:
    method = default_method(images)
    slow = method == "exact" and images > EXACT_ROWS
    return f"{method}; faster with FAISS: pip install 'hfcomp[neighbors]'" if slow else method


def _cached_neighbors(
    cache: EmbeddingCache | None, vectors: NDArray[np.float32], same: NDArray[np.int64], ids: list[str], number: int
) -> list[list[str]]:
    """The neighbors, from the cache's folder when the same ones were searched before."""
    if cache is None or cache.folder is None:
        return neighbor_columns(vectors, ids, number=number, groups=same)["neighbor_ids"]
    # Keyed by the vectors themselves, which change with the model and with every pixel.
    wanted = hashlib.sha256(json.dumps([number, ids]).encode())
    wanted.update(vectors.tobytes() + same.tobytes())
    path = cache.folder / NEIGHBORS / f"{wanted.hexdigest()[:32]}.json"
    with suppress(OSError, KeyError, TypeError):  # a folder that cannot be read, or a file of something else
        near = read_document(path)["neighbor_ids"]
        mark_used(path)
        cache.trim()
        return near
    near = neighbor_columns(vectors, ids, number=number, groups=same)["neighbor_ids"]
    cache.write(path, json.dumps(with_checksum({"neighbor_ids": near})).encode())
    cache.trim()
    return near
