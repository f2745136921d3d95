"""The site builds without a broken link, and the API page has every public name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hfcomp.cli.annotate import DRAFT, PROGRESS
from hfcomp.evaluation.benchmarks import benchmarks

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "analyze",
    "annotate",
    "build",
    "compare",
    "convert",
    "doctor",
    "evaluate",
    "gallery",
    "levels",
    "merge",
    "push",
    "push-dataset",
)
PACKAGES = ("hfcomp", "hfcomp.losses", "hfcomp.trainers", "hfcomp.negatives", "hfcomp.evaluation", "hfcomp.data")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_on_the_api_page(package):
    listed = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs/api.md").read_text(), flags=re.MULTILINE)
    assert len(set(listed)) == len(listed), "a name is there twice"
    found = {id(_value(path)) for path in listed}
    names = [name for name in import_module(package).__all__ if not name.startswith("__")]
    absent = [f"{package}.{name}" for name in names if id(_value(f"{package}.{name}")) not in found]
    assert names and not absent


def test_the_site_builds_without_a_broken_link(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site/api/index.html").read_text()
    assert 'id="hfcomp.losses.cement_loss"' in page
    assert "logit_scale" in page


def commands() -> list[tuple[str, list[str]]]:
    """Each `hfcomp` command in a shell block of README, docs, recipes and cards, with its page."""
    found = []
    for page in (
        path
        for folder in (".", "docs", "recipes", "dataset_builders", "model_cards")
        for path in _pages(ROOT / folder)
    ):
        for block in re.findall(r"```bash\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL):
            lines = (shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines())
            found += [(str(page.relative_to(ROOT)), words[1:]) for words in lines if words[:1] == ["hfcomp"]]
    return [(page, words) for page, words in found if words[0] in COMMANDS and "--list" not in words]


def test_every_command_of_the_docs_is_accepted():
    found = commands()
    assert {words[0] for _, words in found} >= {"analyze", "annotate", "build", "evaluate"}
    for page, (name, *words) in found:
        said = f"{page}: hfcomp {name} {shlex.join(words)}"
        if (name, *words[:1]) == ("analyze", "magic"):  # has a parser of its own
            continue
        parser = "parser"
        if name == "annotate" and words[0] in (DRAFT, PROGRESS):
            parser = f"{words.pop(0)}_parser"
        try:
            given = getattr(import_module(f"hfcomp.cli.{name.replace('-', '_')}"), parser)().parse_args(words)
        except SystemExit:
            pytest.fail(said)
        assert not {*getattr(given, "models", ())} & {*benchmarks()}, said


def _pages(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))


def _value(path):
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
