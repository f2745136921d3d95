"""The declared versions: the page says what pyproject.toml has, and the workflow runs what the Makefile has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
MAIN = ("torch", "transformers", "datasets", "accelerate", "peft")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pythons() -> list[str]:
    matches = [re.search(r"Python :: (3\.\d+)$", classifier) for classifier in PROJECT["classifiers"]]
    return [match[1] for match in matches if match]


def test_the_page_states_the_ranges_of_the_package_with_a_reason_each():
    page = (ROOT / "docs/compatibility.md").read_text()
    stated = {row[0]: row[1] for row in re.findall(r"^\| ([\w-]+) \| `(.*?)` \| \S.* \|$", page, flags=re.MULTILINE)}
    extras = PROJECT["optional-dependencies"]
    lines = [
        *PROJECT["dependencies"],
        *(line for name in extras for line in extras[name] if name not in ("dev", "docs")),
    ]
    declared = {need.name: need.specifier for need in map(Requirement, lines) if need.name != "hfcomp"}
    assert set(MAIN) <= set(stated)
    for name, text in stated.items():
        assert Requirement(f"{name}{text}").specifier == declared[name], name
    assert f"Python {pythons()[0]} to {pythons()[-1]}" in page


def test_the_tested_versions_are_within_the_ranges():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = (line.split(";")[0].strip() for line in lines if "==" in line and not line.startswith("#"))
    tested = dict(pin.split("==") for pin in pins)
    by_name = {name.lower().replace("_", "-"): version for name, version in tested.items()}
    for requirement in map(Requirement, PROJECT["dependencies"]):
        name = requirement.name.lower().replace("_", "-")
        if name in by_name:
            assert requirement.specifier.contains(Version(by_name[name]), prereleases=True), requirement
    assert set(MAIN) <= set(by_name)


def test_the_workflow_runs_targets_that_exist_on_every_python():
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    runs = jobs["test"]["strategy"]["matrix"]["include"]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {run["target"] for run in runs} == {"test", "test-lowest", "test-newest"} <= set(targets)
    assert [run["python"] for run in runs if run["target"] == "test-newest"] == pythons()
    systems = {run.get("system", "ubuntu-latest") for run in runs} | {jobs["windows"]["runs-on"]}
    assert systems == {"ubuntu-latest", "macos-latest", "windows-latest"}
    folders = re.findall(r"tests/[\w/.]+", jobs["windows"]["steps"][-1]["run"])
    assert [folder for folder in folders if not (ROOT / folder).exists()] == []
