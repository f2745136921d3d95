"""Python, the packages that hfcomp needs, and those of its extras."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from hfcomp.environment.findings import BROKEN, NOTE, OK, Finding
from hfcomp.statistics.results import package_versions

AREA, EXTRAS = "packages", "extras"
SHOWN = ("huggingface_hub", "peft")
"""Versions that are shown besides those of `package_versions`."""
IMPORTED = ("torch", "transformers", "datasets", "accelerate", "peft")
"""What is imported to see whether it works; a wrong torchvision breaks the second."""
FOR_CONTRIBUTORS = ("dev", "docs")
SPACY_MODELS = "en_core_web_"


def find_packages() -> Iterator[Finding]:
    """Python, the versions of packages, those out of range, and those that cannot be imported."""
    yield _python()
    versions = package_versions()
    versions |= {name: _version(name) or "missing" for name in SHOWN}
    for name, version in versions.items():
        if name not in ("python", "platform"):
            yield Finding(AREA, name, str(version))
    for requirement in _requirements(""):
        problem = _problem(requirement)
        if problem:
            fix = f'pip install "{requirement.name}{requirement.specifier}"'
            yield Finding(AREA, requirement.name, problem, BROKEN, fix)
    for name in IMPORTED:
        reason = _import_error(name)
        if reason:
            yield Finding(AREA, name, f"cannot be imported: {reason}", BROKEN, f"pip install --force-reinstall {name}")
    yield _torchvision()


def find_extras() -> Iterator[Finding]:
    """Which extras are complete, and what of the others is missing; English pipelines of spaCy."""
    for extra in importlib.metadata.metadata("hfcomp").get_all("Provides-Extra") or ():
        if extra in FOR_CONTRIBUTORS:
            continue
        missing = [one.name for one in _requirements(extra) if _problem(one)]
        if missing:
            yield Finding(EXTRAS, extra, f"missing: {', '.join(missing)}", NOTE, f'pip install "hfcomp[{extra}]"')
        else:
            yield Finding(EXTRAS, extra, "complete")
    if _version("spacy"):
        names = {one.metadata["Name"] or "" for one in importlib.metadata.distributions()}
        models = sorted(name for name in names if name.replace("-", "_").startswith(SPACY_MODELS))
        found = ", ".join(models) or "none; the parser `rules` needs none"
        fix = "" if models else "python -m spacy download en_core_web_sm"
        yield Finding(EXTRAS, "spaCy pipelines", found, OK if models else NOTE, fix)


def _python() -> Finding:
    wanted = SpecifierSet(importlib.metadata.metadata("hfcomp").get("Requires-Python") or "")
    version = platform.python_version()
    if wanted.contains(version, prereleases=True):
        return Finding(AREA, "python", f"{version} on {platform.platform()}")
    return Finding(AREA, "python", f"{version}, expected {wanted}", BROKEN, f"Use Python {wanted}.")


def _requirements(extra: str) -> list[Requirement]:
    """What hfcomp requires on this machine: itself, or beyond that with an extra."""
    found = [Requirement(line) for line in importlib.metadata.requires("hfcomp") or ()]
    chosen = [one for one in found if one.marker is None or one.marker.evaluate({"extra": extra})]
    return chosen if not extra else [one for one in chosen if "extra" in str(one.marker or "")]


def _problem(requirement: Requirement) -> str:
    """Why a requirement is not met; empty where it is."""
    version = _version(requirement.name)
    if version is None:
        return "missing"
    if requirement.specifier.contains(version, prereleases=True):
        return ""
    return f"{version}, expected {requirement.specifier}"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _import_error(name: str) -> str:
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken package raises anything
        return f"{type(error).__name__}: {error}"
    return ""


def _torchvision() -> Finding:
    version = _version("torchvision")
    if version is None:
        return Finding(AREA, "torchvision", "not installed, and not needed: Pillow reads and resizes images")
    reason = _import_error("torchvision")
    if reason:
        fix = "pip uninstall torchvision, or install the one that belongs to this torch"
        return Finding(AREA, "torchvision", f"{version} does not fit this torch: {reason}", BROKEN, fix)
    return Finding(AREA, "torchvision", version)
