"""What SECURITY.md promises of the code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hfcomp

ROOT = Path(__file__).parents[1]
SOURCES = sorted(Path(hfcomp.__file__).parent.rglob("*.py"))


def calls():
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield path, ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}


@pytest.fixture(scope="module")
def all_calls():
    return list(calls())


def test_no_code_of_a_repository_is_run_and_no_pickle_is_read(all_calls):
    loads = [words.get("weights_only") for _, name, words in all_calls if name == "torch.load"]
    assert loads and set(loads) == {"True"}
    trusted = {(path.name, words["trust_remote_code"]) for path, _, words in all_calls if "trust_remote_code" in words}
    assert {place for place in trusted if place[1] != "False"} == {("remote_code.py", "is_trusted(place)")}
    assert not [words for *_, words in all_calls if words.get("allow_pickle", "False") != "False"]
    assert not [
        name for _, name, _ in all_calls if name in ("pickle.load", "pickle.loads", "yaml.unsafe_load", "eval", "exec")
    ]


def test_the_page_is_linked_where_people_look():
    for name in ("README.md", "CONTRIBUTING.md"):
        assert "(SECURITY.md)" in (ROOT / name).read_text(encoding="utf-8")
