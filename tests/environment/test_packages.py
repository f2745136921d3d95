"""What is said of packages and extras: missing ones, versions out of range, and what cannot be imported."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace

import pytest

from hfcomp.environment import packages
from hfcomp.environment.findings import findings_of

REQUIRES = [
    "numpy>=1.26",
    "torch>=900",
    "nowhere-to-be-found>=2",
    'pyarrow>=1; extra == "text"',
    'also-nowhere; extra == "ray"',
    "old-python-only; python_version < '3'",
]


@pytest.fixture
def metadata(monkeypatch):
    facts = {"Provides-Extra": ["text", "ray", "dev"], "Requires-Python": ">=3.11"}
    get_all = lambda name: facts.get(name)  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: REQUIRES)
    monkeypatch.setattr(
        importlib.metadata, "metadata", lambda name: SimpleNamespace(get_all=get_all, get=lambda name: facts[name])
    )
    return facts


def found(check) -> dict:
    return {one.name: one for one in findings_of("packages", check) if one.state != "ok"}


def test_required_packages_that_are_missing_or_too_old_are_broken(metadata):
    bad = found(packages.find_packages)
    assert bad.keys() == {"torch", "nowhere-to-be-found"}
    assert {one.state for one in bad.values()} == {"broken"}
    assert ", expected >=900" in bad["torch"].found and bad["torch"].fix == 'pip install "torch>=900"'
    assert bad["nowhere-to-be-found"].found == "missing"


def test_a_python_that_is_too_old_is_broken(metadata):
    metadata["Requires-Python"] = ">=99"
    assert found(packages.find_packages)["python"].found.endswith(", expected >=99")


def test_an_extra_that_misses_a_package_is_a_note_and_those_of_contributors_are_not_shown(metadata):
    extras = {one.name: one for one in findings_of("extras", packages.find_extras)}
    assert extras["text"].found == "complete" and "dev" not in extras
    assert (extras["ray"].state, extras["ray"].found) == ("note", "missing: also-nowhere")
    assert extras["ray"].fix == 'pip install "hfcomp[ray]"'


def test_a_torchvision_of_another_torch_is_named_with_what_it_raises(metadata, monkeypatch):
    def fail(name):
        if name == "torchvision":
            raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", fail)
    version = packages._version
    monkeypatch.setattr(packages, "_version", lambda name: "0.1" if name == "torchvision" else version(name))
    one = found(packages.find_packages)["torchvision"]
    assert (
        one.state == "broken" and "0.1 does not fit this torch: RuntimeError: operator torchvision::nms" in one.found
    )


def test_a_check_that_fails_is_a_finding_and_keeps_those_before_it():
    def check():
        yield packages.Finding("devices", "CPU", "2 cores")
        raise OSError("the driver is gone")

    first, second = findings_of("devices", check)
    assert first.name == "CPU" and second.state == "broken"
    assert second.found == "failed with OSError: the driver is gone"
