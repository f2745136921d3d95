"""Hard-negative concepts (CLEAR GLASS, section 3.1.4): similar by their embeddings, under no common name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from hfcomp.generation.magic.graph.hierarchy import Chain
from hfcomp.generation.magic.graph.settings import GraphSettings
from hfcomp.generation.magic.graph.similarity import BLOCK, Vectors, blocks, most_similar, places_of, similar_pairs

Rivals = list[tuple[str, float]]


def hard_negatives(
    chains: Mapping[str, Chain], names: Sequence[str], vectors: Vectors, settings: GraphSettings, *, block: int = BLOCK
) -> dict[str, Rivals]:
    """Of each concept the most similar others with a cosine above `negative_similarity`, at most `max_negatives`.

    No name of its chain is in the chain of the other, whatever its level: "animal" is no negative of a dog below
    "animal". Only the `shared_levels` most abstract levels of both may have common names.

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
    ids = _ids([chains[name] for name in names])
    order = places_of(names)
    found: dict[str, Rivals] = {name: [] for name in names}
    for rows in blocks(np.arange(len(names)), block):
        first, second, cosines = similar_pairs(vectors, settings.negative_similarity, rows=rows, block=block)
        differ = np.ones(len(first), bool)
        for level, other_level in product(range(4), repeat=2):
            if min(level, other_level) < top:
                differ &= ids[first, level] != ids[second, other_level]
        kept = most_similar((first[differ], second[differ], cosines[differ]), order, settings.max_negatives)
        for one, other, cosine in zip(*kept, strict=True):
            found[names[one]].append((names[other], float(cosine)))
    return found


def _ids(chains: Sequence[Chain]) -> np.ndarray:
    """`[n, 4]`, equal numbers for equal names."""
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(name, len(numbers)) for name in chain] for chain in chains]
    return np.array(rows, np.int64).reshape(len(chains), 4)
