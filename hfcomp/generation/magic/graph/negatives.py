"""Hard-negative concepts (CLEAR GLASS, section 3.1.4): similar by their embeddings, under no common name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hfcomp.generation.magic.graph.hierarchy import Chain
from hfcomp.generation.magic.graph.settings import GraphSettings
from hfcomp.generation.magic.graph.similarity import BLOCK, Vectors, similar_pairs

Rivals = list[tuple[str, float]]


def hard_negatives(
    chains: Mapping[str, Chain], names: Sequence[str], vectors: Vectors, settings: GraphSettings, *, block: int = BLOCK
) -> dict[str, Rivals]:
    """Of each concept the most similar others with a cosine above `negative_similarity`, at most `max_negatives`.

    None shares the name of a level with it, but on the `shared_levels` most abstract ones, where it may.

    Args:
        chains: of each concept.
        names: of the rows of `vectors`, all of them with a chain.
        vectors: `[n, D]`, see `similar_pairs`.
        settings: thresholds.
        block: rows at a time.

    Returns:
        Names and cosines, the nearest first, equal ones by name.
    """
    top = 4 - settings.shared_levels
    ids = _ids([chains[name][1:top] for name in names], top - 1)
    found: dict[str, Rivals] = {name: [] for name in names}
    for start in range(0, len(names), block):
        rows = np.arange(start, min(start + block, len(names)))
        first, second, cosines = similar_pairs(vectors, settings.negative_similarity, rows=rows, block=block)
        differ = (ids[first] != ids[second]).all(axis=1)
        for one, other, cosine in zip(first[differ], second[differ], cosines[differ], strict=True):
            found[names[one]].append((names[other], float(cosine)))
        for row in rows:
            rivals = sorted(found[names[row]], key=lambda one: (-one[1], one[0]))
            found[names[row]] = rivals[: settings.max_negatives]
    return found


def _ids(chains: Sequence[Sequence[str]], levels: int) -> np.ndarray:
    """`[n, levels]`, equal numbers for equal names of a level."""
    numbers: list[dict[str, int]] = [{} for _ in range(levels)]
    rows = [[known.setdefault(name, len(known)) for known, name in zip(numbers, one, strict=True)] for one in chains]
    return np.array(rows, np.int64).reshape(len(chains), levels)
