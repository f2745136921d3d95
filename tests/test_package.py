"""The package as a whole: a cheap import, lazy public names, one version."""

import ast
import dataclasses
import importlib
import importlib.metadata
import inspect
import json
import os
import pydoc
import re
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


PACKAGES = ("hfcomp", *(f"hfcomp.{name}" for name in ("data", "evaluation", "losses", "negatives", "trainers")))


@pytest.mark.parametrize("package", ["losses", "trainers"])
def test_stubs_have_what_the_api_page_lists(package):
    """HFCOMP_WRITE_STUBS=1 writes them, so that nobody has to."""
    folder = ROOT / "hfcomp" / package
    homes = {
        node.name: ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted(folder.rglob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    page = (ROOT / "docs/api.md").read_text()
    names = sorted(
        re.findall(rf"^::: hfcomp\.{package}\.(\w+)$", page, re.MULTILINE), key=lambda name: (homes[name], name)
    )
    text = "".join(f"from {homes[name]} import {name} as {name}\n" for name in names)
    stub = folder / "__init__.pyi"
    if os.environ.get("HFCOMP_WRITE_STUBS"):
        stub.write_text(text)
    assert stub.read_text() == text


def test_an_objective_is_three_files_of_the_library():
    """Its loss, its trainer and what cards say of it; docs/api.md, from which stubs are written, is none of these."""
    files = {path for path in (ROOT / "hfcomp").rglob("*.*") if path.suffix in (".py", ".yaml")}
    named = {
        str(path.relative_to(ROOT)) for path in files if re.search("DCLTrainer|DCLConfig|dcl_loss", path.read_text())
    }
    assert named == {"hfcomp/losses/dcl.py", "hfcomp/trainers/dcl.py", "hfcomp/reporting/cards/methods.yaml"}


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_resolve(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value):
            assert value.__name__ == name
            assert value.__doc__, f"{name} has no docstring"


def test_help_takes_at_most_two_screens():
    """Of a class its own docstring, which `help()` shows first, ahead of what it has from transformers or torch."""
    sizes = {}
    for name in set(hfcomp.__all__) - {"__version__"}:
        value = getattr(hfcomp, name)
        text = inspect.getdoc(value) if isinstance(value, type) else pydoc.plain(pydoc.render_doc(value))
        sizes[name] = len(text.splitlines()), len(text)
    assert not {name: size for name, size in sizes.items() if size[0] > 100 or size[1] >= 4_500}


def test_signatures_of_configs_show_every_field():
    for config in (hfcomp.CementConfig, hfcomp.InfoNCEConfig):
        shown = inspect.signature(config).parameters
        assert [field.name for field in dataclasses.fields(config) if field.init] == list(shown)
        assert shown["learning_rate"].default == 1e-6 and "output_dir" in shown
    assert inspect.signature(hfcomp.CementConfig).parameters["margin"].default == "adaptive"


def test_dir_lists_public_names():
    assert set(hfcomp.__all__) <= set(dir(hfcomp))
    assert len(hfcomp.__all__) == len(set(hfcomp.__all__))


def test_type_checkers_know_that_there_are_types():
    assert (Path(hfcomp.__file__).parent / "py.typed").is_file()


def test_unknown_attribute_names_the_nearest():
    with pytest.raises(AttributeError, match="'CementTrainr'.*'CementTrainer'"):
        _ = hfcomp.CementTrainr
    with pytest.raises(AttributeError, match="no attribute 'zzzz'.$"):
        _ = hfcomp.zzzz


def test_version_equals_the_built_metadata():
    built = importlib.metadata.version("hfcomp")
    assert hfcomp.__version__ == built, "reinstall with `pip install -e .` after a change of version"
