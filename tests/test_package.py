"""The package as a whole: a cheap import, lazy public names, one version."""

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import hfcomp

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "evaluate", "peft", "diffusers", "spacy", "textblob")
PROBE = f"""
import json, sys, time
start = time.perf_counter()
import hfcomp
seconds = time.perf_counter() - start
print(json.dumps([seconds, [name for name in {HEAVY!r} if name in sys.modules]]))
"""


@pytest.fixture(scope="module")
def imports() -> list:
    def probe() -> list:
        command = [sys.executable, "-c", PROBE]
        return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)

    return [probe() for _ in range(3)]


def test_import_is_fast(imports):
    assert min(seconds for seconds, _ in imports) < 0.3


def test_import_loads_no_heavy_package(imports):
    assert imports[0][1] == []


@pytest.mark.parametrize("name", hfcomp.__all__)
def test_public_name_resolves(name):
    value = getattr(hfcomp, name)
    if name != "__version__":
        assert value.__name__ == name
        assert value.__doc__, f"{name} has no docstring"


def test_dir_lists_public_names():
    assert set(hfcomp.__all__) <= set(dir(hfcomp))
    assert len(hfcomp.__all__) == len(set(hfcomp.__all__))


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(hfcomp.__file__).read_text(encoding="utf-8"))
    guard = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname: node.module for node in guard.body for alias in node.names}
    assert seen == hfcomp._HOME


def test_unknown_attribute_names_the_nearest():
    with pytest.raises(AttributeError, match="'CementTrainr'.*Did you mean 'CementTrainer'"):
        _ = hfcomp.CementTrainr
    with pytest.raises(AttributeError, match="no attribute 'zzzz'.$"):
        _ = hfcomp.zzzz


def test_version_equals_the_built_metadata():
    built = importlib.metadata.version("hfcomp")
    assert hfcomp.__version__ == built, "reinstall with `pip install -e .` after a change of version"
