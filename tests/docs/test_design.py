"""docs/design.md names files that exist, every package, and the layers of the import contract."""

from __future__ import annotations

import re

from tests.docs.snippets import ROOT
from tests.structure.import_graph import floors

PAGE = (ROOT / "docs/design.md").read_text(encoding="utf-8")


def test_every_path_exists():
    paths = {path for path in re.findall(r"`([\w./]+)`", PAGE) if "/" in path or path.endswith(".py")}
    folders = ["", "hfcomp", *(f"hfcomp/{name}" for name in ("analysis", "evaluation", "losses", "trainers"))]
    assert len(paths) > 50
    assert not [path for path in paths if not any((ROOT / folder / path).exists() for folder in folders)]


def test_every_package_has_its_line_and_its_place_in_the_picture():
    picture, _, table = PAGE.partition("## Packages")
    modules = {path.stem for path in (ROOT / "hfcomp").iterdir() if path.suffix == ".py" or path.is_dir()}
    modules = {name for name in modules if not name.startswith("_")}
    missing = [name for name in modules if not re.search(rf"^\| `hfcomp/{name}(\.py)?/?` \|", table, re.MULTILINE)]
    assert not missing
    core = {name.removeprefix("hfcomp.") for name in floors() if name.count(".") == 1} & modules
    assert not [name for name in core - {"workers", "plugins", "testing"} if name not in picture]
