"""From first-level concepts and their numbers of images to a hierarchy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hfcomp.generation.magic.encoders import ConceptEncoder
from hfcomp.generation.magic.graph.hierarchy import Chain, Concept, Hierarchy
from hfcomp.generation.magic.graph.merging import Merged, merge_small
from hfcomp.generation.magic.graph.negatives import Rivals, hard_negatives
from hfcomp.generation.magic.graph.parents import find_parents, without_chain
from hfcomp.generation.magic.graph.settings import GraphSettings
from hfcomp.generation.magic.graph.similarity import check_vectors
from hfcomp.generation.magic.graph.splits import draw_test_concepts
from hfcomp.generation.magic.source import ConceptSource

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
    """Merges small concepts, finds the parents of the others, their hard negatives and the split by concept.

    Algorithm 1 of CLEAR GLASS asks for all parents first. Merging concerns level 1 alone, so the parents of the
    concepts that are left are the same, and most questions are saved; but a source that grows is offered fewer names.

    Args:
        images: the number of images of each canonical name; their order does not matter.
        source: of the parents.
        encoder: of the names.
        settings: thresholds.
        log: receives lines about what is done.
        progress: whether to show bars.

    Raises:
        ValueError: for a vector that is not finite.
    """
    names = sorted(images)
    vectors = encoder.encode(names)
    check_vectors(vectors, names)
    merged = merge_small(images, names, vectors, settings)
    log(f"{len(merged.merges):,} small concepts merged, {len(merged.removed):,} removed, {len(merged.images):,} left")
    parents = find_parents(merged.images, source, progress=progress)
    chains, orphans = without_chain(merged.images, parents)
    rows = np.array([row for row, name in enumerate(names) if name in chains], np.int64)
    kept = [names[row] for row in rows]
    rivals = hard_negatives(chains, kept, vectors[rows], settings)
    log(f"{len(kept):,} concepts, {sum(map(bool, rivals.values())):,} of them with a hard negative")
    unseen = draw_test_concepts(kept, settings.test_share, settings.seed)
    return Hierarchy(
        concepts=tuple(_concept(name, chains[name], merged, rivals[name], name in unseen) for name in kept),
        parents={name: parents.of[1][name] for name in kept},
        nodes=parents.nodes(kept),
        merges=merged.merges,
        removed=tuple(sorted([*merged.removed, *orphans], key=lambda one: one.name)),
        cuts=tuple(sorted(parents.cuts, key=lambda one: (one.level, one.name, one.parent))),
        refused=dict(sorted(parents.refused.items())),
    )


def _concept(name: str, chain: Chain, merged: Merged, rivals: Rivals, unseen: bool) -> Concept:
    names, cosines = tuple(one for one, _ in rivals), tuple(cosine for _, cosine in rivals)
    return Concept(name, chain, merged.images[name], merged.members.get(name, ()), names, cosines, unseen)
