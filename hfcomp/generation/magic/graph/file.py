"""`hierarchy.json`: a hierarchy on disk, the same bytes for the same hierarchy."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from hfcomp.checksums import read_checked
from hfcomp.data.built_sets import HIERARCHY
from hfcomp.generation.magic.graph.hierarchy import Concept, Cut, Hierarchy, Merge, Node, Removal
from hfcomp.writing import write_json

SCHEMA_VERSION = 1
_FIX = "Delete it and repeat the `hfcomp build magic` command that made it, or download the set again."
_RECORDS = {"concepts": Concept, "nodes": Node, "merges": Merge, "removed": Removal, "cuts": Cut}


def write_hierarchy(folder: Path, hierarchy: Hierarchy) -> None:
    """Writes the file into the folder of a set."""
    records = {name: [asdict(one) for one in getattr(hierarchy, name)] for name in _RECORDS}
    others = {name: dict(getattr(hierarchy, name)) for name in ("parents", "refused", "facts")}
    write_json(folder / HIERARCHY, {"schema_version": SCHEMA_VERSION, **records, **others}, sort_keys=True)


def read_hierarchy(folder: Path) -> Hierarchy:
    """The hierarchy in the folder of a set.

    Raises:
        ValueError: for a file that is missing, damaged or of another version.
    """
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
    return {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
