"""One HTML page, usable offline: the tree of concepts to open and search, with thumbnails and hard negatives.

Names and captions may be a language model's: all of them are escaped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

from hfcomp.analysis.hierarchy.members import Members, SetMembers
from hfcomp.generation.magic.hierarchy import Concept, Hierarchy
from hfcomp.reporting.pages.page import render_page, table_html, text_html
from hfcomp.reporting.report import Table

_FILES = Path(__file__).parent
_NO_ROWS = Members()
_Nodes = dict[tuple[int, str], list[str]]


def concepts_page(hierarchy: Hierarchy, members: SetMembers, tables: Sequence[Table], *, title: str) -> str:
    """The page, the same text for the same set.

    Args:
        hierarchy: of the set.
        members: of its concepts.
        tables: that stand above the tree.
        title: of the page.
    """
    pictures = {
        one.name: members.concepts[one.name].pictures for one in hierarchy.concepts if one.name in members.concepts
    }
    parts = {
        "tables": "\n".join(map(table_html, tables)),
        "tree": _Tree(hierarchy, members.concepts).html(),
    }
    return render_page(
        title,
        Template((_FILES / "page.html").read_text("utf-8")).substitute(parts),
        styles=[_FILES / "page.css"],
        scripts=[_FILES / "page.js"],
        data={"pictures": pictures},
    )


class _Tree:
    """Each concept stands under its first parent; its other parents link to it."""

    def __init__(self, hierarchy: Hierarchy, members: Mapping[str, Members]) -> None:
        self._members = members
        self._ids = {one.name: f"c{number}" for number, one in enumerate(hierarchy.concepts)}
        self._concepts = {one.name: one for one in hierarchy.concepts}
        self._below: _Nodes = defaultdict(list)
        self._links: _Nodes = defaultdict(list)
        parents = {(1, name): found for name, found in hierarchy.parents.items()}
        parents |= {(one.level, one.name): one.parents for one in hierarchy.nodes}
        for (level, name), (first, *others) in ((key, found) for key, found in sorted(parents.items()) if found):
            self._below[level + 1, first].append(name)
            for other in others:
                self._links[level + 1, other].append(name)
        self._top = [one.name for one in hierarchy.nodes if one.level == 4]

    def html(self) -> str:
        return "\n".join(self._node(4, name) for name in self._top)

    def _node(self, level: int, name: str) -> str:
        if level == 1:
            return self._leaf(self._concepts[name])
        concepts = self._leaves(level, name)
        images = sum(self._concepts[one].images for one in concepts)
        inside = "\n".join(self._node(level - 1, one) for one in self._below[level, name])
        links = ", ".join(self._link(one) if level == 2 else text_html(one) for one in self._links[level, name])
        also = f'<p class="also">Also: {links}</p>' if links else ""
        counts = f"{len(concepts):,} concept{'s' * (len(concepts) != 1)}, {images:,} images"
        return f"<details{_data(level, name)}>{_summary(level, name, counts)}{also}{inside}</details>"

    def _leaves(self, level: int, name: str) -> list[str]:
        below = self._below[level, name]
        return below if level == 2 else [leaf for one in below for leaf in self._leaves(level - 1, one)]

    def _leaf(self, concept: Concept) -> str:
        own = self._members.get(concept.name, _NO_ROWS)
        counts = f"{concept.images:,} images, {own.rows['train']:,} train and {own.rows['test']:,} test rows"
        unseen = ' <span class="mark">unseen by concept</span>' if concept.unseen else ""
        pairs = zip(concept.hard_negatives, concept.similarities, strict=True)
        rivals = "".join(f"<li>{self._link(name)} <small>{cosine:.3f}</small></li>" for name, cosine in pairs)
        parts = [
            f'<div class="pictures" data-name="{escape(concept.name)}"></div>' if own.pictures else "",
            "".join(f"<q>{text_html(text)}</q> " for text in own.captions),
            f"<p>Hard negatives, the nearest first:</p><ol>{rivals}</ol>" if rivals else "<p>No hard negative.</p>",
            f"<p>Merged: {', '.join(map(text_html, concept.merged))}</p>" if concept.merged else "",
        ]
        known = " ".join((concept.name, *concept.merged))
        head = _summary(1, concept.name, counts, unseen)
        return f'<details id="{self._ids[concept.name]}"{_data(1, known)}>{head}{"".join(parts)}</details>'

    def _link(self, name: str) -> str:
        place = self._ids.get(name)
        return f'<a href="#{place}">{text_html(name)}</a>' if place else text_html(name)


def _data(level: int, names: str) -> str:
    return f' data-level="{level}" data-names="{escape(names.casefold())}"'


def _summary(level: int, name: str, counts: str, mark: str = "") -> str:
    return f"<summary><b>{text_html(name)}</b>{mark} <small>level {level}: {counts}</small></summary>"
