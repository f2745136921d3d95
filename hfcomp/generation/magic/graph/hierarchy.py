"""A hierarchy of concepts: what is in it, and what became of the concepts that are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from networkx import DiGraph

Chain = tuple[str, str, str, str]
"""Names of level 1 to 4."""


@dataclass(frozen=True)
class Concept:
    """A concept of level 1: a group of images.

    Attributes:
        name: of the concept.
        chain: its name and those above it, the first parent at each level.
        images: that are in it, those of merged concepts too.
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
        level: of the node.
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
        concepts: of level 1, by name.
        parents: of each of them, its parents on level 2, the first one in its chain.
        nodes: of level 2 to 4, by level and name.
        merges: in their order.
        removed: by name.
        cuts: by level, name and parent.
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
        while name in self._merged:
            name = self._merged[name]
        return self._found.get(name) or self._reasons.get(name, "not a concept of this hierarchy")

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
    def _found(self) -> dict[str, Concept]:
        return {one.name: one for one in self.concepts}

    @cached_property
    def _merged(self) -> dict[str, str]:
        return {one.name: one.into for one in self.merges}

    @cached_property
    def _reasons(self) -> dict[str, str]:
        return {one.name: one.reason for one in self.removed}
