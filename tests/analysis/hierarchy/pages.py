"""A small hierarchy, and its page."""

from __future__ import annotations

from hfcomp.analysis.hierarchy.page import Members, SetMembers, concepts_page
from hfcomp.factory.magic.hierarchy import Concept, Hierarchy, Node
from hfcomp.reporting.report import Table

HOSTILE = '</script><img src=x onerror="alert(1)">'


def hierarchy(name: str = "dog") -> Hierarchy:
    """Two concepts that are each other's hard negative, one of them in two places."""
    concepts = (
        Concept("cat", ("cat", "pet", "animal", "thing"), 7, ("kitten",), (name,), (0.9,), True),
        Concept(name, (name, "pet", "animal", "thing"), 1234, (), ("cat",), (0.9,)),
    )
    nodes = (
        Node(2, "friend", ("animal",)),
        Node(2, "pet", ("animal", "toy")),
        Node(3, "animal", ("thing",)),
        Node(3, "toy", ("thing",)),
        Node(4, "thing"),
    )
    return Hierarchy(concepts, {"cat": ("pet", "friend"), name: ("pet",)}, nodes)


def page(name: str = "dog", **members: Members) -> str:
    """The page of `hierarchy(name)`."""
    table = Table(f"Table of {name}", ["", "number"], [[name, "3"]])
    return concepts_page(hierarchy(name), SetMembers(members, 3, 0), [table], title=f"Concepts of {name}")
