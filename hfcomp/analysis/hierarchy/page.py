"""`hfcomp analyze magic`: one HTML page with tables and a searchable tree of concepts.

Names and captions may come from a language model, so all of them are escaped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from hfcomp.analysis.hierarchy.options import HierarchyOptions
from hfcomp.data.images import decode_image
from hfcomp.data.loading import load_training_set, undecoded
from hfcomp.data.pair_table import texts_of
from hfcomp.factory.magic.hierarchy import Concept, Hierarchy, hierarchy_tables, read_hierarchy
from hfcomp.reporting.format import count_text
from hfcomp.reporting.pages.page import fill, render_page, thumbnail
from hfcomp.reporting.report import Report, Section, Table
from hfcomp.reporting.saving import render_markdown
from hfcomp.reporting.terminal import render_terminal
from hfcomp.writing import check_free_folder, write_text

SIDE = 96
"""Longer side of a thumbnail, in pixels."""
CAPTIONS = 4
"""Number of generalized captions shown per concept."""


@dataclass
class Members:
    """The rows of one concept."""

    rows: dict[str, int] = field(default_factory=lambda: {"train": 0, "test": 0})  # images by split
    captions: list[str] = field(default_factory=list)  # the first generalized captions
    pictures: list[str] = field(default_factory=list)  # data URIs


@dataclass(frozen=True)
class SetMembers:
    concepts: Mapping[str, Members]
    pairs: int  # number of pairs of an image and a generalized caption
    undecoded: int  # number of images that cannot be decoded


def read_members(folder: Path, *, thumbnails: int, progress: bool = False) -> SetMembers:
    """Reads the splits of a dataset from `hfcomp build magic`, and verifies each file."""
    concepts: dict[str, Members] = {}
    pairs = undecoded_images = 0
    for split in ("train", "test"):
        try:
            rows = undecoded(load_training_set(str(folder), split=split, config="captions"))
        except ValueError as error:
            if "has no rows" in str(error):  # a split of a small dataset
                continue
            raise
        texts = zip(rows["group"][:], map(texts_of, rows["generalized_caption"][:]), strict=True)
        for row, (name, captions) in enumerate(tqdm(texts, desc=split, total=len(rows), disable=not progress)):
            own = concepts.setdefault(name, Members())
            own.rows[split] += 1
            pairs += len(captions)
            own.captions = list(dict.fromkeys([*own.captions, *captions]))[:CAPTIONS]
            # Decode only the images that are shown.
            if len(own.pictures) < thumbnails:
                try:
                    own.pictures.append(thumbnail(decode_image(rows[row]["image"]), SIDE).uri)
                except (ValueError, OSError):
                    undecoded_images += 1
    return SetMembers(concepts, pairs, undecoded_images)


_FILES = Path(__file__).parent
_NO_ROWS = Members()
_Nodes = dict[tuple[int, str], list[str]]


def concepts_page(hierarchy: Hierarchy, members: SetMembers, tables: Sequence[Table], *, title: str) -> str:
    pictures = {
        concept.name: members.concepts[concept.name].pictures
        for concept in hierarchy.concepts
        if concept.name in members.concepts
    }
    tree = _Tree(hierarchy, members.concepts).nodes()
    return render_page(
        title,
        fill(_FILES / "page.html", tables=tables, tree=tree),
        styles=[_FILES / "page.css"],
        scripts=[_FILES / "page.js"],
        data={"pictures": pictures},
    )


class _Tree:
    """Tree for the template. Each concept is placed under its first parent; its other parents link to it."""

    def __init__(self, hierarchy: Hierarchy, members: Mapping[str, Members]) -> None:
        self._members = members
        self._ids = {concept.name: f"c{number}" for number, concept in enumerate(hierarchy.concepts)}
        self._concepts = {concept.name: concept for concept in hierarchy.concepts}
        self._below: _Nodes = defaultdict(list)
        self._links: _Nodes = defaultdict(list)
        # Concepts are level 1, below the nodes of levels 2 to 4.
        parents = {(1, name): above for name, above in hierarchy.parents.items()}
        parents |= {(node.level, node.name): node.parents for node in hierarchy.nodes}
        # Sort the names below a node alphabetically.
        for (level, name), (first, *others) in ((key, above) for key, above in sorted(parents.items()) if above):
            self._below[level + 1, first].append(name)
            for other in others:
                self._links[level + 1, other].append(name)
        self._top = [node.name for node in hierarchy.nodes if node.level == 4]

    def nodes(self) -> list[dict[str, Any]]:
        """Returns the nodes of level 4 for the template, with lower nodes nested inside."""
        return [self._node(4, name) for name in self._top]

    def _node(self, level: int, name: str) -> dict[str, Any]:
        if level == 1:
            return self._leaf(self._concepts[name])
        concepts = self._leaves(level, name)
        images = sum(self._concepts[concept].images for concept in concepts)
        return {
            **{"level": level, "name": name, "names": name, "id": None, "unseen": False},
            "counts": f"{count_text(len(concepts), 'concept')}, {images:,} images",
            "also": [(child, self._ids.get(child) if level == 2 else None) for child in self._links[level, name]],
            "inside": [self._node(level - 1, child) for child in self._below[level, name]],
        }

    def _leaves(self, level: int, name: str) -> list[str]:
        below = self._below[level, name]
        return below if level == 2 else [leaf for child in below for leaf in self._leaves(level - 1, child)]

    def _leaf(self, concept: Concept) -> dict[str, Any]:
        own = self._members.get(concept.name, _NO_ROWS)
        pairs = zip(concept.hard_negatives, concept.similarities, strict=True)
        return {
            **{"level": 1, "name": concept.name, "names": " ".join((concept.name, *concept.merged))},
            **{"id": self._ids[concept.name], "unseen": concept.unseen, "merged": concept.merged, "rows": own},
            "counts": f"{concept.images:,} images, {own.rows['train']:,} train and {own.rows['test']:,} test rows",
            "hard_negatives": [(name, self._ids.get(name), f"{cosine:.3f}") for name, cosine in pairs],
        }


PAGE, REPORT = "concepts.html", "report.md"


def analyze_hierarchy(folder: Path, options: HierarchyOptions, *, progress: bool = False) -> Path:
    """Writes the page and the report, prints the tables, and returns the path of the page."""
    check_free_folder(options.output_dir, options.overwrite, written=[PAGE, REPORT])
    page = options.output_dir / PAGE
    hierarchy = read_hierarchy(folder)
    members = read_members(folder, thumbnails=options.thumbnails, progress=progress)
    rows = [
        [split, f"{sum(concept.rows[split] for concept in members.concepts.values()):,}"]
        for split in ("train", "test")
    ]
    rows.append(["images that cannot be decoded", f"{members.undecoded:,}"])
    tables = [*hierarchy_tables(hierarchy, members.pairs), Table("Rows of the split by image", ["", "rows"], rows)]
    title = f"Concepts of {folder.resolve().name}"
    report = Report(title, sections=[Section("", tables)])
    options.output_dir.mkdir(parents=True, exist_ok=True)
    write_text(page, concepts_page(hierarchy, members, tables, title=title))
    write_text(options.output_dir / REPORT, render_markdown(report))
    render_terminal(report)
    return page
