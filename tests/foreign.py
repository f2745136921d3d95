"""Packages of others as an installer leaves them: modules, and a `.dist-info` folder with their entry points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

Install = Callable[[Mapping[str, str], Mapping[str, Mapping[str, str]]], None]


@pytest.fixture
def install(tmp_path, monkeypatch) -> Iterator[Install]:
    """Installs the package `loud`: its modules by name, and the entry points of each group."""
    from hfcomp.evaluation.benchmarks import benchmarks  # for few tests, all of which load this file
    from hfcomp.experiments.recipe_files import studies
    from hfcomp.factory.builder import builders

    site = tmp_path / "site"
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])

    def forget() -> None:
        for registry in (benchmarks, builders, studies):
            registry.cache_clear()

    def install(modules: Mapping[str, str], groups: Mapping[str, Mapping[str, str]]) -> None:
        information = site / "loud-1.0.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1.0\n")
        lines = [
            line
            for group, points in groups.items()
            for line in (f"[{group}]", *(f"{name} = {place}" for name, place in points.items()))
        ]
        (information / "entry_points.txt").write_text("\n".join(lines))
        for name, text in modules.items():
            (site / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)  # of another test
        forget()

    yield install
    forget()
    for name in [path.stem for path in site.glob("*.py")]:
        sys.modules.pop(name, None)
