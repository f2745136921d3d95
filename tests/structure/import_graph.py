"""Which file imports which: arrows, circles, and the floors of the layer contracts in pyproject.toml.

An arrow leads from a file to every file of ours that it imports, at its top, inside a function or under
`TYPE_CHECKING`: a reader follows all three. A public name of a lazy package (one with an `__init__.pyi`) leads to the
file that defines it. The packages above a module, which Python imports too, are no arrows.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from os.path import commonpath
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("hfcomp", "recipes", "dataset_builders", "benchmarks_perf")


@cache
def import_graph(root: Path = ROOT) -> nx.DiGraph:
    """Returns the graph of the files below `root`, named by their paths from there."""
    paths = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    places = {_module(path.relative_to(root)): str(path.relative_to(root)) for path in paths}
    for stub in sorted(root.glob("hfcomp/**/__init__.pyi"), key=lambda path: -len(path.parts)):  # inner ones first
        package = _module(stub.relative_to(root))
        for module, name in _imports(stub):
            inner = root.joinpath(*module.split("."), "__init__.pyi")
            for each in [each for _, each in _imports(inner)] if name == "*" else [name]:
                places.setdefault(f"{package}.{each}", places.get(f"{module}.{each}") or places[module])
    graph = nx.DiGraph()
    graph.add_nodes_from(places.values())
    for path in paths:
        source, folder = str(path.relative_to(root)), _module(path.parent.relative_to(root))
        for module, name in _imports(path):  # by a script also from its own folder
            target = places.get(f"{module}.{name}") or places.get(module) or places.get(f"{folder}.{module}")
            if target not in (None, source):
                graph.add_edge(source, target)
    return graph


def circles(graph: nx.DiGraph) -> list[set[str]]:
    """Returns the largest sets of files that all import each other, directly or through others of the set."""
    return [files for files in nx.strongly_connected_components(graph) if len(files) > 1]


@cache
def floors() -> dict[str, int]:
    """Returns the floors by module: of hfcomp's layer contract, and of those that packages with storeys declare."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    return {
        f"{container}.{name}": number
        for contract in tools["importlinter"]["contracts"]
        for container in contract.get("containers", [])
        for number, layer in enumerate(reversed(contract["layers"]))
        for name in re.findall(r"\w+", layer)
    }


def is_above(file: str, other: str) -> bool:
    """Whether a file is on a higher floor than another one, by the contract of the innermost folder with both."""
    depth = len(Path(commonpath([file, other])).parts) + 1
    high, low = (floors().get(".".join(Path(path).with_suffix("").parts[:depth])) for path in (file, other))
    return None not in (high, low) and high > low


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the module and the name of each import; the name is empty in `import module`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
