"""The site builds without a broken link, and the API page has every public name."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LISTED = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs/api.md").read_text(), flags=re.MULTILINE)
PACKAGES = ("hfcomp", "hfcomp.losses", "hfcomp.trainers", "hfcomp.negatives", "hfcomp.evaluation", "hfcomp.data")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_on_the_api_page(package):
    assert len(set(LISTED)) == len(LISTED), "a name is there twice"
    ids = {id(_value(path)) for path in LISTED}
    names = [name for name in import_module(package).__all__ if not name.startswith("__")]
    absent = [f"{package}.{name}" for name in names if id(_value(f"{package}.{name}")) not in ids]
    assert names and not absent


def test_every_public_name_says_what_it_takes():
    for path in LISTED:
        name = _value(path)
        members = vars(name).values() if inspect.isclass(name) else [name]
        functions = [member for member in members if inspect.isfunction(member) and member.__name__[0] != "_"]
        # not the wrapped ones of a framework
        own = [function for function in functions if function.__module__.startswith("hfcomp")]
        assert inspect.getdoc(name), path
        assert not [function.__qualname__ for function in own if not inspect.getdoc(function)]
        assert not {function.__qualname__: absent for function in own if (absent := _untold(function))}


def _untold(function):
    """The arguments that a docstring with a section of arguments leaves out."""
    told = re.findall(r"^    \*{0,2}(\w+)(?: \(.*\))?:", inspect.getdoc(function), flags=re.MULTILINE)
    if "Args:" not in inspect.getdoc(function):
        return []
    return [name for name in inspect.signature(function).parameters if name not in {*told, "self", "cls"}]


def test_the_site_builds_without_a_broken_link(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site/api/index.html").read_text()
    assert 'id="hfcomp.losses.cement_loss"' in page
    assert "logit_scale" in page


def _value(path):
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
