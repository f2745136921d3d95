"""No circle between files, and no import to a higher floor (about 2 s)."""

from __future__ import annotations

from tests.structure.import_graph import circles, import_graph, is_above


def test_files_import_each_other_in_no_circle():
    assert circles(import_graph()) == []


def test_no_file_imports_one_on_a_higher_floor():
    """Next to import-linter, which does not see the file behind a name of a lazy package."""
    assert not [(file, higher) for file, higher in import_graph().edges if is_above(higher, file)]


def test_every_kind_of_import_is_an_arrow(tmp_path):
    files = {
        "hfcomp/cli/main.py": "from hfcomp.data import load\n",
        "hfcomp/data/__init__.pyi": "from hfcomp.data.loading import load as load\n",
        "hfcomp/data/loading.py": "def load():\n    from hfcomp.data import columns\n",
        "hfcomp/data/columns.py": "if TYPE_CHECKING:\n    from hfcomp.data.loading import load\n",
        "hfcomp/losses/clip.py": "import hfcomp.cli.main\n",
        "recipes/one.py": "from two import run\n",
        "recipes/two.py": "import json\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = import_graph(tmp_path)
    assert {f"{source} -> {target}" for source, target in graph.edges} == {
        "hfcomp/cli/main.py -> hfcomp/data/loading.py",
        "hfcomp/data/loading.py -> hfcomp/data/columns.py",
        "hfcomp/data/columns.py -> hfcomp/data/loading.py",
        "hfcomp/losses/clip.py -> hfcomp/cli/main.py",
        "recipes/one.py -> recipes/two.py",
    }
    assert circles(graph) == [{"hfcomp/data/columns.py", "hfcomp/data/loading.py"}]
    upward = [(file, higher) for file, higher in graph.edges if is_above(higher, file)]
    assert upward == [("hfcomp/losses/clip.py", "hfcomp/cli/main.py")]
