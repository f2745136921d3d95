"""A hierarchy of concepts, with records of merged, removed and cut ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.checksums import read_checked
from hfcomp.data.built_sets.files import HIERARCHY
from hfcomp.factory.magic.cosines import Cosines, Histogram
from hfcomp.reporting.report import Table
from hfcomp.writing import write_json

if TYPE_CHECKING:
    from networkx import DiGraph

# Names of levels 1 to 4.
Chain = tuple[str, str, str, str]
NO_CONCEPT = "not a concept of this hierarchy"


@dataclass(frozen=True)
class Concept:
    """A concept of level 1: a group of images.

    Attributes:
        chain: The concept's name and its first parent on each level above.
        images: Number of images, including those of merged concepts.
        merged: Names of concepts that were merged into this one.
        hard_negatives: Names of other concepts, the most similar first.
        similarities: Cosine of each hard negative.
        unseen: Whether this is a test concept in the split by concept.
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
        name: Name, unique on its level.
        parents: Names on the next level; the first one is in chains. Empty on level 4.
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
    """A removed concept, with the most similar concept if similarity was the reason."""

    name: str
    images: int
    reason: str
    nearest: str | None = None
    similarity: float | None = None


@dataclass(frozen=True)
class Cut:
    """A rejected parent."""

    level: int
    name: str
    parent: str
    reason: str


@dataclass(frozen=True)
class Hierarchy:
    """The graph of concepts.

    Attributes:
        concepts: Concepts of level 1, sorted by name.
        parents: Parents on level 2 of each concept; the first one is in its chain.
        nodes: Concepts of levels 2 to 4, sorted by level and name.
        merges: Merges in the order in which they were made.
        removed: Removed concepts, sorted by name.
        cuts: Rejected parents, sorted by level, name and parent.
        refused: Number of the source's answers about parents that were not used, by reason.
        cosines: Distribution of the cosines between the concepts; empty if an earlier hfcomp built the hierarchy.
        facts: Inputs of the hierarchy: settings, encoder, source.
    """

    concepts: tuple[Concept, ...]
    parents: Mapping[str, tuple[str, ...]]
    nodes: tuple[Node, ...]
    merges: tuple[Merge, ...] = ()
    removed: tuple[Removal, ...] = ()
    cuts: tuple[Cut, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    cosines: Cosines = Cosines()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def place(self, name: str) -> Concept | str:
        """The concept that a first-level name belongs to after merges, or the reason why it belongs to none."""
        return self._places.get(name, NO_CONCEPT)

    def graph(self) -> DiGraph:
        """The graph: nodes are pairs of level and name, edges run from a parent to its child."""
        from networkx import DiGraph

        graph = DiGraph()
        graph.add_nodes_from((1, concept.name) for concept in self.concepts)
        graph.add_nodes_from((node.level, node.name) for node in self.nodes)
        graph.add_edges_from(((2, parent), (1, name)) for name, parents in self.parents.items() for parent in parents)
        edges = (((node.level + 1, parent), (node.level, node.name)) for node in self.nodes for parent in node.parents)
        graph.add_edges_from(edges)
        return graph

    @cached_property
    def _places(self) -> dict[str, Concept | str]:
        places: dict[str, Concept | str] = {removal.name: removal.reason for removal in self.removed}
        places |= {concept.name: concept for concept in self.concepts}
        # A concept that absorbed others may itself have been merged later.
        for merge in reversed(self.merges):
            places[merge.name] = places.get(merge.into, NO_CONCEPT)
        return places


SCHEMA_VERSION = 1
_FIX = "Delete it and repeat the `hfcomp build magic` command that made it, or download the dataset again."
_RECORDS = {"concepts": Concept, "nodes": Node, "merges": Merge, "removed": Removal, "cuts": Cut}


def write_hierarchy(folder: Path, hierarchy: Hierarchy) -> None:
    records = {name: [asdict(record) for record in getattr(hierarchy, name)] for name in _RECORDS}
    others = {name: dict(getattr(hierarchy, name)) for name in ("parents", "refused", "facts")}
    cosines = {name: dict(getattr(hierarchy.cosines, name).counts) for name in ("nearest", "pairs")}
    content = {"schema_version": SCHEMA_VERSION, **records, **others, "cosines": cosines}
    write_json(folder / HIERARCHY, content, sort_keys=True)


def read_hierarchy(folder: Path) -> Hierarchy:
    path = folder / HIERARCHY
    if not path.is_file():
        raise ValueError(f"{folder} has no {HIERARCHY}; expected a folder built by `hfcomp build magic`.")
    content = read_checked(path, _FIX)
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"{path} was not written by this version of hfcomp. {_FIX}")
    try:
        records = {name: tuple(kind(**_tuples(record)) for record in content[name]) for name, kind in _RECORDS.items()}
        parents = {name: tuple(above) for name, above in content["parents"].items()}
        cosines = Cosines(**{name: Histogram(counts) for name, counts in content.get("cosines", {}).items()})
        others = {name: content[name] for name in ("refused", "facts")}
        return Hierarchy(**records, parents=parents, cosines=cosines, **others)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}. {_FIX}") from error


def _tuples(record: dict[str, Any]) -> dict[str, Any]:
    # JSON has no tuples, and lists would not be equal to the tuples of a new hierarchy.
    return {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}


# CLEAR GLASS, Table 1. Its pairs divided by its concepts would be 76.2 per concept.
PAPER_PAIRS, PAPER_NODES, PAPER_IMAGES = 81_602, (1_071, 281, 113, 87), 32.48


def hierarchy_tables(hierarchy: Hierarchy, pairs: int) -> list[Table]:
    """Tables: a comparison with the paper's Table 1, kept and lost concepts, and the cosines between concepts.

    Args:
        pairs: Number of image-caption pairs in the dataset; 0 if it is not built yet.
    """
    small = [record.similarity for record in (*hierarchy.merges, *hierarchy.removed) if record.similarity is not None]
    return [_numbers(hierarchy, pairs), *_outcomes(hierarchy), *hierarchy.cosines.tables(small)]


def _numbers(hierarchy: Hierarchy, pairs: int) -> Table:
    levels = Counter(node.level for node in hierarchy.nodes)
    nodes = (len(hierarchy.concepts), *(levels[level] for level in (2, 3, 4)))
    images = sum(concept.images for concept in hierarchy.concepts)
    rows = [["image-caption pairs", f"{pairs:,}" if pairs else "-", f"{PAPER_PAIRS:,}"]]
    rows += [
        [f"concepts of level {level}", f"{ours:,}", f"{paper:,}"]
        for level, (ours, paper) in enumerate(zip(nodes, PAPER_NODES, strict=True), start=1)
    ]
    mean = images / max(len(hierarchy.concepts), 1)
    rows.append(["images per concept of level 1", f"{mean:.2f}", f"{PAPER_IMAGES} (per node)"])
    return Table("Hierarchy", ["", "this dataset", "the paper's MAGIC"], rows)


def _outcomes(hierarchy: Hierarchy) -> list[Table]:
    concepts, removed = hierarchy.concepts, Counter(removal.reason for removal in hierarchy.removed)
    lost = Counter()
    for removal in hierarchy.removed:
        lost[removal.reason] += removal.images
    groups = {
        "kept": concepts,
        "of these, with a hard negative": [concept for concept in concepts if concept.hard_negatives],
        "of these, test concepts in the by-concept split": [concept for concept in concepts if concept.unseen],
        "merged into others": hierarchy.merges,
    }
    rows = [(what, len(group), sum(entry.images for entry in group)) for what, group in groups.items()]
    rows += [(f"removed, {reason}", number, lost[reason]) for reason, number in sorted(removed.items())]
    tables = [Table("Concepts of level 1", ["", "concepts", "images"], [[a, f"{b:,}", f"{c:,}"] for a, b, c in rows])]
    for title, counts in (
        ("parents cut", Counter(cut.reason for cut in hierarchy.cuts)),
        ("rejected answers about parents, counted each time", Counter(hierarchy.refused)),
    ):
        if counts:
            cells = [[reason, f"{number:,}"] for reason, number in sorted(counts.items())]
            tables.append(Table(title, ["reason", "number"], cells))
    return tables
