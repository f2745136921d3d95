"""`hfcomp analyze magic`: one HTML page with the tree of concepts to open and search, and its tables.

Names and captions may be a language model's: all of them are escaped.
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
from hfcomp.factory.magic.hierarchy import Concept, Hierarchy, hierarchy_tables, read_hierarchy
from hfcomp.reporting.format import count_text
from hfcomp.reporting.pages.page import fill, render_page, thumbnail
from hfcomp.reporting.report import Report, Section, Table
from hfcomp.reporting.saving import render_markdown
from hfcomp.reporting.terminal import render_terminal
from hfcomp.writing import check_free_folder, write_text

SIDE = 96
"""Of a thumbnail: pixels of its longer side."""
CAPTIONS = 4
"""Generalized captions that are shown of a concept."""


@dataclass
class Members:
    """The rows of one concept."""

    rows: dict[str, int] = field(default_factory=lambda: {"train": 0, "test": 0})  # images by split
    captions: list[str] = field(default_factory=list)  # the first generalized captions
    pictures: list[str] = field(default_factory=list)  # data URIs


@dataclass(frozen=True)
class SetMembers:
    concepts: Mapping[str, Members]
    pairs: int  # images with each of their captions
    undecoded: int  # number of images that cannot be decoded


def read_members(folder: Path, *, thumbnails: int, progress: bool = False) -> SetMembers:
    """Reads the parts of a set of `hfcomp build magic`, each file verified."""
    found: dict[str, Members] = {}
    pairs = wrong = 0
    for split in ("train", "test"):
        try:
            rows = undecoded(load_training_set(str(folder), split=split, config="captions"))
        except ValueError as error:
            if "has no rows" in str(error):  # of a split of a small set
                continue
            raise
        pairs += sum(1 if isinstance(one, str) else len(one or ()) for one in rows["caption"][:])
        texts = zip(rows["group"][:], rows["generalized_caption"][:], strict=True)
        for row, (name, caption) in enumerate(tqdm(texts, desc=split, total=len(rows), disable=not progress)):
            own = found.setdefault(name, Members())
            own.rows[split] += 1
            if len(own.captions) < CAPTIONS and caption not in own.captions:
                own.captions.append(caption)
            # Only as many images are decoded as are shown.
            if len(own.pictures) < thumbnails:
                try:
                    own.pictures.append(thumbnail(decode_image(rows[row]["image"]), SIDE).uri)
                except (ValueError, OSError):
                    wrong += 1
    return SetMembers(found, pairs, wrong)


_FILES = Path(__file__).parent
_NO_ROWS = Members()
_Nodes = dict[tuple[int, str], list[str]]


def concepts_page(hierarchy: Hierarchy, members: SetMembers, tables: Sequence[Table], *, title: str) -> str:
    pictures = {
        one.name: members.concepts[one.name].pictures for one in hierarchy.concepts if one.name in members.concepts
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
    """Each concept stands under its first parent; its other parents link to it."""

    def __init__(self, hierarchy: Hierarchy, members: Mapping[str, Members]) -> None:
        self._members = members
        self._ids = {one.name: f"c{number}" for number, one in enumerate(hierarchy.concepts)}
        self._concepts = {one.name: one for one in hierarchy.concepts}
        self._below: _Nodes = defaultdict(list)
        self._links: _Nodes = defaultdict(list)
        # Concepts are level 1, below the nodes of levels 2 to 4.
        parents = {(1, name): found for name, found in hierarchy.parents.items()}
        parents |= {(one.level, one.name): one.parents for one in hierarchy.nodes}
        # Sorted, so names of one node are in alphabetical order.
        for (level, name), (first, *others) in ((key, found) for key, found in sorted(parents.items()) if found):
            self._below[level + 1, first].append(name)
            for other in others:
                self._links[level + 1, other].append(name)
        self._top = [one.name for one in hierarchy.nodes if one.level == 4]

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of level 4 as the template shows them, with those below inside."""
        return [self._node(4, name) for name in self._top]

    def _node(self, level: int, name: str) -> dict[str, Any]:
        if level == 1:
            return self._leaf(self._concepts[name])
        concepts = self._leaves(level, name)
        images = sum(self._concepts[one].images for one in concepts)
        return {
            **{"level": level, "name": name, "names": name, "id": None, "unseen": False},
            "counts": f"{count_text(len(concepts), 'concept')}, {images:,} images",
            "also": [(one, self._ids.get(one) if level == 2 else None) for one in self._links[level, name]],
            "inside": [self._node(level - 1, one) for one in self._below[level, name]],
        }

    def _leaves(self, level: int, name: str) -> list[str]:
        below = self._below[level, name]
        return below if level == 2 else [leaf for one in below for leaf in self._leaves(level - 1, one)]

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
    """Writes the page and the report of a set, prints the tables, and returns the page's path."""
    check_free_folder(options.output_dir, options.overwrite, written=[PAGE, REPORT])
    page = options.output_dir / PAGE
    hierarchy = read_hierarchy(folder)
    members = read_members(folder, thumbnails=options.thumbnails, progress=progress)
    rows = [[split, f"{sum(one.rows[split] for one in members.concepts.values()):,}"] for split in ("train", "test")]
    rows.append(["images that cannot be decoded", f"{members.undecoded:,}"])
    tables = [*hierarchy_tables(hierarchy, members.pairs), Table("Rows of the split by image", ["", "rows"], rows)]
    title = f"Concepts of {folder.resolve().name}"
    report = Report(title, sections=[Section("", tables)])
    options.output_dir.mkdir(parents=True, exist_ok=True)
    write_text(page, concepts_page(hierarchy, members, tables, title=title))
    write_text(options.output_dir / REPORT, render_markdown(report))
    render_terminal(report)
    return page
