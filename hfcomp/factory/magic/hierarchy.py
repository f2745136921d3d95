"""A hierarchy of concepts: what is in it, and what became of the concepts that are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.checksums import read_checked
from hfcomp.data.built_sets.files import HIERARCHY
from hfcomp.reporting.report import Table
from hfcomp.writing import write_json

if TYPE_CHECKING:
    from networkx import DiGraph

# Names of levels 1 to 4.
Chain = tuple[str, str, str, str]


@dataclass(frozen=True)
class Concept:
    """A concept of level 1: a group of images.

    Attributes:
        chain: its name and those above it, the first parent at each level.
        images: Number of its images, those of merged concepts included.
        merged: names of concepts that were merged into it.
        hard_negatives: names of other concepts, the most similar first.
        similarities: the cosine of each.
        unseen: whether it is a test concept in the split by concept.
    """

    name: str
    chain: Chain
    images: int
    merged: tuple[str, ...] = ()
    hard_negatives: tuple[str, ...] = ()
    similarities: tuple[float, ...] = ()
    unseen: bool = False


@dataclass(frozen=True)
class Node:
    """A concept of level 2, 3 or 4.

    Attributes:
        name: unique on its level.
        parents: names on the next level; the first one is in chains. None on level 4.
    """

    level: int
    name: str
    parents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Merge:
    """A small concept that became part of a larger one."""

    name: str
    into: str
    images: int
    similarity: float


@dataclass(frozen=True)
class Removal:
    """A concept that was removed, with the one that it was most similar to, if that was the reason."""

    name: str
    images: int
    reason: str
    nearest: str | None = None
    similarity: float | None = None


@dataclass(frozen=True)
class Cut:
    """A parent that was not taken."""

    level: int
    name: str
    parent: str
    reason: str


@dataclass(frozen=True)
class Hierarchy:
    """The graph of concepts.

    Attributes:
        concepts: Concepts of level 1, sorted by name.
        parents: Parents of each on level 2; the first one is in its chain.
        nodes: Concepts of level 2 to 4, sorted by level and name.
        merges: In the order in which they were made.
        removed: Sorted by name.
        cuts: Sorted by level, name and parent.
        refused: answers of the source about parents that were not used, by reason.
        facts: what it was made of: settings, encoder, source.
    """

    concepts: tuple[Concept, ...]
    parents: Mapping[str, tuple[str, ...]]
    nodes: tuple[Node, ...]
    merges: tuple[Merge, ...] = ()
    removed: tuple[Removal, ...] = ()
    cuts: tuple[Cut, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def place(self, name: str) -> Concept | str:
        """The concept that a first-level name belongs to, merges followed; or the reason why it has none."""
        # A concept that took in others may have been merged itself.
        while name in self._merged_into:
            name = self._merged_into[name]
        return self._concept_by_name.get(name) or self._removal_reasons.get(name, "not a concept of this hierarchy")

    def graph(self) -> DiGraph:
        """Nodes are pairs of level and name, edges run from a parent to its child."""
        from networkx import DiGraph

        found = DiGraph()
        found.add_nodes_from((1, one.name) for one in self.concepts)
        found.add_nodes_from((one.level, one.name) for one in self.nodes)
        found.add_edges_from(((2, parent), (1, name)) for name, parents in self.parents.items() for parent in parents)
        edges = (((one.level + 1, parent), (one.level, one.name)) for one in self.nodes for parent in one.parents)
        found.add_edges_from(edges)
        return found

    @cached_property
    def _concept_by_name(self) -> dict[str, Concept]:
        return {one.name: one for one in self.concepts}

    @cached_property
    def _merged_into(self) -> dict[str, str]:
        return {one.name: one.into for one in self.merges}

    @cached_property
    def _removal_reasons(self) -> dict[str, str]:
        return {one.name: one.reason for one in self.removed}


SCHEMA_VERSION = 1
_FIX = "Delete it and repeat the `hfcomp build magic` command that made it, or download the set again."
_RECORDS = {"concepts": Concept, "nodes": Node, "merges": Merge, "removed": Removal, "cuts": Cut}


def write_hierarchy(folder: Path, hierarchy: Hierarchy) -> None:
    records = {name: [asdict(one) for one in getattr(hierarchy, name)] for name in _RECORDS}
    others = {name: dict(getattr(hierarchy, name)) for name in ("parents", "refused", "facts")}
    write_json(folder / HIERARCHY, {"schema_version": SCHEMA_VERSION, **records, **others}, sort_keys=True)


def read_hierarchy(folder: Path) -> Hierarchy:
    path = folder / HIERARCHY
    if not path.is_file():
        raise ValueError(f"{folder} has no {HIERARCHY}: expected the folder of a set of `hfcomp build magic`.")
    content = read_checked(path, _FIX)
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"{path} was not written by this version of hfcomp. {_FIX}")
    try:
        records = {name: tuple(kind(**_tuples(one)) for one in content[name]) for name, kind in _RECORDS.items()}
        parents = {name: tuple(found) for name, found in content["parents"].items()}
        return Hierarchy(**records, parents=parents, refused=content["refused"], facts=content["facts"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}. {_FIX}") from error


def _tuples(record: dict[str, Any]) -> dict[str, Any]:
    # JSON has no tuples, and lists would not equal those of a new hierarchy.
    return {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}


# CLEAR GLASS, Table 1. Its pairs divided by its concepts would be 76.2 per concept.
PAPER_PAIRS, PAPER_NODES, PAPER_IMAGES = 81_602, (1_071, 281, 113, 87), 32.48


def hierarchy_tables(hierarchy: Hierarchy, pairs: int) -> list[Table]:
    """The paper's Table 1 beside ours, and what became of concepts.

    Args:
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
        *_subset_row("with a hard negative", [one.images for one in concepts if one.hard_negatives]),
        *_subset_row("test concepts of the split by concept", [one.images for one in concepts if one.unseen]),
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


def _subset_row(what: str, images: list[int]) -> list[list[object]]:
    return [[f"of these, {what}", len(images), sum(images)]]
