"""What is in a hierarchy, as tables."""

from __future__ import annotations

from collections import Counter

from hfcomp.generation.magic.graph.hierarchy import Hierarchy
from hfcomp.reporting.report import Table

PAPER_PAIRS, PAPER_NODES, PAPER_IMAGES = 81_602, (1_071, 281, 113, 87), 32.48
"""CLEAR GLASS, Table 1. Its pairs by its concepts would be 76.2 a concept."""


def hierarchy_tables(hierarchy: Hierarchy, pairs: int) -> list[Table]:
    """The paper's Table 1 beside ours, and what became of concepts.

    Args:
        hierarchy: of a set.
        pairs: images with each of their captions in the set; 0 where it is not built yet.
    """
    return [_numbers(hierarchy, pairs), *_outcomes(hierarchy)]


def _numbers(hierarchy: Hierarchy, pairs: int) -> Table:
    levels = Counter(one.level for one in hierarchy.nodes)
    nodes = (len(hierarchy.concepts), *(levels[level] for level in (2, 3, 4)))
    images = sum(one.images for one in hierarchy.concepts)
    rows = [["image-caption pairs", f"{pairs:,}" if pairs else "-", f"{PAPER_PAIRS:,}"]]
    rows += [
        [f"concepts of level {level}", f"{ours:,}", f"{paper:,}"]
        for level, (ours, paper) in enumerate(zip(nodes, PAPER_NODES, strict=True), start=1)
    ]
    mean = images / max(len(hierarchy.concepts), 1)
    rows.append(["images per concept of level 1", f"{mean:.2f}", f"{PAPER_IMAGES} (per node)"])
    return Table("Hierarchy", ["", "this set", "the paper's MAGIC"], rows)


def _outcomes(hierarchy: Hierarchy) -> list[Table]:
    concepts, removed = hierarchy.concepts, Counter(one.reason for one in hierarchy.removed)
    lost = Counter()
    for one in hierarchy.removed:
        lost[one.reason] += one.images
    rows = [
        ["kept", len(concepts), sum(one.images for one in concepts)],
        *_of_kept("with a hard negative", [one.images for one in concepts if one.hard_negatives]),
        *_of_kept("test concepts of the split by concept", [one.images for one in concepts if one.unseen]),
        ["merged into others", len(hierarchy.merges), sum(one.images for one in hierarchy.merges)],
        *([f"removed, {reason}", number, lost[reason]] for reason, number in sorted(removed.items())),
    ]
    tables = [Table("Concepts of level 1", ["", "concepts", "images"], [[a, f"{b:,}", f"{c:,}"] for a, b, c in rows])]
    for title, counts in (
        ("parents cut", Counter(one.reason for one in hierarchy.cuts)),
        ("answers about parents refused, counted each time", Counter(hierarchy.refused)),
    ):
        if counts:
            cells = [[reason, f"{number:,}"] for reason, number in sorted(counts.items())]
            tables.append(Table(title, ["reason", "number"], cells))
    return tables


def _of_kept(what: str, images: list[int]) -> list[list[object]]:
    return [[f"of these, {what}", len(images), sum(images)]]
