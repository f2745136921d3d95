"""Builds a hierarchy from first-level concepts and their numbers of images."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from tqdm.auto import tqdm

from hfcomp.factory.magic.cosines import Cosines
from hfcomp.factory.magic.hierarchy import Chain, Concept, Cut, Hierarchy, Node, Removal
from hfcomp.factory.magic.merging import HardNegatives, Merged, hard_negatives, merge_small, negative_threshold
from hfcomp.factory.magic.options import GraphSettings
from hfcomp.factory.magic.similarity import Vectors, check_vectors
from hfcomp.factory.magic.source import ConceptSource, SourceAnswer
from hfcomp.reporting.format import count_text

if TYPE_CHECKING:
    from hfcomp.factory.magic.encoders import ConceptEncoder  # imports models

Log = Callable[[str], None]


def build_hierarchy(
    images: Mapping[str, int],
    source: ConceptSource,
    encoder: ConceptEncoder,
    settings: GraphSettings,
    *,
    log: Log,
    progress: bool = False,
) -> Hierarchy:
    """Merges small concepts, finds parents and hard negatives of the others, and splits them into seen and unseen.

    Algorithm 1 of CLEAR GLASS requests all parents first. Merging concerns only level 1, so the remaining concepts
    have the same parents, and most questions are saved. However, a source that grows is offered fewer names.
    """
    # Sorting makes the result independent of the order of rows and shards.
    names = sorted(images)
    vectors = encoder.encode(names)
    check_vectors(vectors, names)
    merged = merge_small(images, names, vectors, settings)
    log(f"{len(merged.merges):,} small concepts merged, {len(merged.removed):,} removed, {len(merged.images):,} left")
    parents = find_parents(merged.images, source, progress=progress)
    chains, orphans = split_by_chain(merged.images, parents)
    rows = np.array([row for row, name in enumerate(names) if name in chains], np.int64)
    kept = [names[row] for row in rows]
    cosines, negatives = _find_negatives(chains, kept, vectors[rows], settings, log)
    unseen = draw_test_concepts(kept, settings.test_share, settings.seed)
    return Hierarchy(
        concepts=tuple(_concept(name, chains[name], merged, negatives[name], name in unseen) for name in kept),
        parents={name: parents.by_level[1][name] for name in kept},
        nodes=parents.nodes(kept),
        merges=merged.merges,
        removed=tuple(sorted([*merged.removed, *orphans], key=lambda removal: removal.name)),
        cuts=tuple(sorted(parents.cuts, key=lambda cut: (cut.level, cut.name, cut.parent))),
        refused=dict(sorted(parents.refused.items())),
        cosines=cosines,
    )


def _find_negatives(
    chains: Mapping[str, Chain], names: Sequence[str], vectors: Vectors, settings: GraphSettings, log: Log
) -> tuple[Cosines, dict[str, HardNegatives]]:
    cosines = Cosines.between(vectors)
    threshold = negative_threshold(cosines, settings)
    negatives = hard_negatives(chains, names, vectors, settings, threshold)
    if cosines.pairs.total:
        log(cosines.summary())
    number = sum(map(bool, negatives.values()))
    log(f"{len(names):,} concepts, {number:,} of them with a hard negative, whose cosine is above {threshold:g}")
    return cosines, negatives


def check_hard_negatives(hierarchy: Hierarchy, settings: GraphSettings) -> None:
    """Raises ValueError if no concept has a hard negative. The error names settings that give some."""
    if any(concept.hard_negatives for concept in hierarchy.concepts):
        return
    cosines = hierarchy.cosines
    without = f"none of the {len(hierarchy.concepts):,} concepts has a hard negative, which training needs"
    if not cosines.pairs.total:
        raise ValueError(f"{without}: there are no two to compare. Use more images, or a smaller --min_images.")
    threshold, lower = negative_threshold(cosines, settings), cosines.nearest.threshold(0.25)
    if settings.shared_levels < 4 and (above := cosines.pairs.above(threshold)):
        raise ValueError(
            f"{without}: {count_text(above, 'pair')} with a cosine above {threshold:g} share names. Pass "
            "--shared_levels 4."
        )
    shared = "" if settings.shared_levels == 4 else " and --shared_levels 4"
    raise ValueError(
        f"{without}: no cosine is above {threshold:g} ({cosines.summary()}). Instead of --negative_similarity "
        f"{threshold:g}, pass --negative_quantile 0.99{shared}, or --negative_similarity {lower:g}{shared}, which "
        f"{cosines.nearest.above(lower):,} concepts exceed."
    )


def _concept(name: str, chain: Chain, merged: Merged, negatives: HardNegatives, unseen: bool) -> Concept:
    names, cosines = tuple(other for other, _ in negatives), tuple(cosine for _, cosine in negatives)
    return Concept(name, chain, merged.images[name], merged.members.get(name, ()), names, cosines, unseen)


# Number of concepts that are sent for parents before the list of known parents is updated. Our choice, equal to the
# number of concurrent requests.
CONCEPTS_PER_BLOCK = 64
TOP = 4
ITSELF, BELOW = "its own parent", "the name of a concept below it"


@dataclass
class Parents:
    """Parents of concepts.

    Attributes:
        by_level: Parents of each name, by level, 1 to 3.
        ends: Lowest level that no path from a name of level 1 reaches; 5 if a path is complete.
        cuts: Rejected parents.
        refused: Number of answers that the source did not use, by reason.
    """

    by_level: dict[int, dict[str, tuple[str, ...]]] = field(default_factory=lambda: {1: {}, 2: {}, 3: {}})
    ends: dict[str, int] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    def chain(self, name: str) -> Chain | None:
        """A name of level 1 and its first parents up to level 4; None without a path to level 4."""
        if self.ends[name] <= TOP:
            return None
        names = [name]
        for level in range(1, TOP):
            names.append(self.by_level[level][names[-1]][0])
        return (names[0], names[1], names[2], names[3])

    def nodes(self, names: Sequence[str]) -> tuple[Node, ...]:
        """All concepts above those of level 1, sorted by level and name."""
        nodes, below = [], {*names}
        for level in range(2, TOP + 1):
            below = {parent for name in below for parent in self.by_level[level - 1].get(name, ())}
            nodes += [Node(level, name, self.by_level.get(level, {}).get(name, ())) for name in sorted(below)]
        return tuple(nodes)


def find_parents(images: Mapping[str, int], source: ConceptSource, *, progress: bool = False) -> Parents:
    """Requests the parents of concepts, level by level, starting with concepts that have the most images.

    If a source's answers depend on the known names, it is queried in blocks of `CONCEPTS_PER_BLOCK`, so the result
    does not depend on the order in which a server answers. A parent with the name of the concept, or of a concept
    below it, would close a cycle and is cut. A node is cut as well if none of its parents leads to the top. The
    concepts below it lose this path; a concept without another path has no chain.
    """
    found_parents = Parents()
    below: dict[str, set[str]] = {name: set() for name in images}  # names under each name of this level
    size = dict(images)
    for level in range(1, TOP):
        names = sorted(below, key=lambda name: (-size[name], name))
        next_below: dict[str, set[str]] = {}
        next_size: Counter[str] = Counter()
        with tqdm(total=len(names), desc=f"parents of level {level}", disable=not progress) as bar:
            for block in _blocks(names, source):
                # A prompt has room for only some names. Frequent names come first, which keeps the number of parents
                # small.
                known = sorted(next_size, key=lambda name: (-next_size[name], name))
                for name, answer in zip(block, source.parents(level, block, known), strict=True):
                    found_parents.refused.update(reason.partition(":")[0] for reason in answer.refused)
                    parents = _accept_parents(level, name, answer, below[name], found_parents.cuts)
                    found_parents.by_level[level][name] = parents
                    for parent in parents:
                        next_below.setdefault(parent, set()).update(below[name], (name,))
                        next_size[parent] += size[name]
                bar.update(len(block))
        below, size = next_below, next_size
    _prune(found_parents)
    return found_parents


def split_by_chain(images: Mapping[str, int], parents: Parents) -> tuple[dict[str, Chain], list[Removal]]:
    """The chains of concepts, and the concepts without a chain."""
    chains, removed = {}, []
    for name, number in sorted(images.items()):
        chain = parents.chain(name)
        if chain is None:
            removed.append(Removal(name, number, f"no parent on level {parents.ends[name]}"))
        else:
            chains[name] = chain
    return chains, removed


def _blocks(names: Sequence[str], source: ConceptSource) -> Iterator[Sequence[str]]:
    step = CONCEPTS_PER_BLOCK if source.grows else max(len(names), 1)
    return (names[start : start + step] for start in range(0, len(names), step))


def _accept_parents(level: int, name: str, answer: SourceAnswer, below: set[str], cuts: list[Cut]) -> tuple[str, ...]:
    accepted = []
    for parent in dict.fromkeys(answer.texts):
        if parent == name or parent in below:
            cuts.append(Cut(level, name, parent, ITSELF if parent == name else BELOW))
        else:
            accepted.append(parent)
    return tuple(accepted)


def _prune(result: Parents) -> None:
    """Removes parents that do not lead to the top, and records how far each name of level 1 leads."""
    ends = {parent: TOP + 1 for parents in result.by_level[TOP - 1].values() for parent in parents}
    for level in range(TOP - 1, 0, -1):
        # Levels are visited from the top down: a name leads to the top if one of its parents does.
        above, ends = ends, {}
        for name, parents in result.by_level[level].items():
            ends[name] = max((above[parent] for parent in parents), default=level + 1)
            result.by_level[level][name] = tuple(parent for parent in parents if above[parent] > TOP)
    result.ends = ends


def draw_test_images(ids_of: Mapping[str, Sequence[str]], share: float, seed: int) -> set[str]:
    """The test images: a rounded share of each concept's images."""
    return {image for ids in ids_of.values() for image in _draw(ids, round(share * len(ids)), seed)}


def draw_test_concepts(names: Sequence[str], share: float, seed: int) -> set[str]:
    """The test concepts: a rounded share; of two or more concepts at least one, but not all."""
    number = round(share * len(names))
    return {*_draw(names, min(max(number, 1), len(names) - 1), seed)}


def _draw(names: Iterable[str], number: int, seed: int) -> list[str]:
    # Names are ordered by a hash of seed and name. If names come or go, only those at the border change their split.
    return sorted(names, key=lambda name: (hashlib.sha256(f"{seed} {name}".encode()).digest(), name))[:number]
