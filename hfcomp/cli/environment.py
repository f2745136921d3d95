"""What this machine has for hfcomp, and what is missing: packages, devices, disks, the Hub. For `hfcomp doctor`."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from hfcomp.data.publishing import TOKEN
from hfcomp.reporting.format import count_text
from hfcomp.reporting.report import Lines, Report, Section, Table
from hfcomp.statistics.results import package_versions
from hfcomp.store import cache_folder, default_limit, size_text

OK, NOTE, BROKEN = "ok", "note", "broken"
PACKAGES, EXTRAS, DEVICES, STORAGE, HUB = "packages", "extras", "devices", "storage", "hub"
TITLES = {
    PACKAGES: "Packages",
    EXTRAS: 'Extras: pip install "hfcomp[...]"',
    DEVICES: "Devices",
    STORAGE: "Storage",
    HUB: "Hub",
}
SHOWN = ("huggingface_hub", "peft")
"""Versions that are shown besides those of `package_versions`."""
IMPORTED = ("torch", "transformers", "datasets", "accelerate", "peft")
"""What is imported to see whether it works; a wrong torchvision breaks the second."""
FOR_CONTRIBUTORS = ("dev", "docs")
SPACY_MODELS = "en_core_web_"
LAUNCH = "accelerate launch --num_processes {0} -m hfcomp.cli train RECIPE"
LITTLE = 5 * 10**9
"""Free bytes below which there is a note: a CLIP with its optimizer's state takes about 2 GB."""
PATIENCE = 3.0
"""Seconds for the size of a folder."""
TIMEOUT = 5.0
"""Seconds for an answer."""
LOGIN = "hf auth login"
UNREACHED = (
    "Check connection, proxy and HF_ENDPOINT. Without the Hub: the sandbox, and models and data in local folders."
)


@dataclass(frozen=True)
class Finding:
    """A fact.

    Attributes:
        area: One of `TITLES`.
        name: what was looked at.
        found: in words.
        state: `ok`, `note` for what some uses need, `broken` for what all need.
        fix: what to do; empty for nothing.
    """

    area: str
    name: str
    found: str
    state: Literal["ok", "note", "broken"] = OK
    fix: str = ""


Check = Callable[[], Iterator[Finding]]


def findings_of(area: str, check: Check) -> list[Finding]:
    """What a check finds; one that fails itself is a finding too, so that the others are still shown.

    Args:
        area: of the check.
        check: gives findings one by one.
    """
    found = []
    try:
        for one in check():
            found.append(one)
    except Exception as error:  # of whatever library is broken here
        reason = f"{type(error).__name__}: {error}"
        found.append(Finding(area, "check", f"failed with {reason}", BROKEN, f"Fix what {area} failed with."))
    return found


def find_packages() -> Iterator[Finding]:
    """Python, the versions of packages, those out of range, and those that cannot be imported."""
    yield _python()
    versions = package_versions()
    versions |= {name: _version(name) or "missing" for name in SHOWN}
    for name, version in versions.items():
        if name not in ("python", "platform"):
            yield Finding(PACKAGES, name, str(version))
    for requirement in _requirements(""):
        problem = _problem(requirement)
        if problem:
            fix = f'pip install "{requirement.name}{requirement.specifier}"'
            yield Finding(PACKAGES, requirement.name, problem, BROKEN, fix)
    for name in IMPORTED:
        reason = _import_error(name)
        if reason:
            yield Finding(
                PACKAGES, name, f"cannot be imported: {reason}", BROKEN, f"pip install --force-reinstall {name}"
            )
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
        return Finding(PACKAGES, "python", f"{version} on {platform.platform()}")
    return Finding(PACKAGES, "python", f"{version}, expected {wanted}", BROKEN, f"Use Python {wanted}.")


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
        return Finding(PACKAGES, "torchvision", "not installed, and not needed: Pillow reads and resizes images")
    reason = _import_error("torchvision")
    if reason:
        fix = "pip uninstall torchvision, or install the one that belongs to this torch"
        return Finding(PACKAGES, "torchvision", f"{version} does not fit this torch: {reason}", BROKEN, fix)
    return Finding(PACKAGES, "torchvision", version)


def find_devices() -> Iterator[Finding]:
    """The processor, the GPUs with their memory and whether they have bf16, and how to use several."""
    import psutil
    import torch

    memory = psutil.virtual_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shown = f"{count_text(cores, 'core')}, {count_text(torch.get_num_threads(), 'thread')}"
    found = f"{shown}, {size_text(memory.total)} of memory, "
    yield _computing("CPU", f"{found}{size_text(memory.available)} free", torch, "cpu")
    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index in range(number):
        yield _gpu(torch, index)
    other = torch.accelerator.current_accelerator() if torch.accelerator.is_available() and not number else None
    if other is not None:
        yield _computing(other.type, f"{torch.accelerator.device_count()} of them", torch, other.type)
    elif not number:
        yield _no_gpu(torch)
    if number > 1:
        found = "`hfcomp train` uses one of them, plain `python` is refused"
        yield Finding(DEVICES, f"{number} GPUs", found, NOTE, f"To train on all: {LAUNCH.format(number)}")


def _gpu(torch: Any, index: int) -> Finding:
    facts = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    with torch.cuda.device(index):
        half = "bf16" if torch.cuda.is_bf16_supported() else "no bf16: use fp16"
    found = f"{facts.name}, {size_text(total)} of memory, {size_text(free)} free, {half}"
    return _computing(f"cuda:{index}", found, torch, f"cuda:{index}")


def _no_gpu(torch: Any) -> Finding:
    if torch.version.cuda is None and torch.version.hip is None:
        return Finding(DEVICES, "GPU", "none: this torch is built for the CPU", OK)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f", and CUDA_VISIBLE_DEVICES is {visible!r}"
    fix = "If the machine has one, check that `nvidia-smi` lists it, and CUDA_VISIBLE_DEVICES."
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    return Finding(DEVICES, "GPU", f"none is visible: this torch is built for {built}{hidden}", NOTE, fix)


def _computing(name: str, found: str, torch: Any, device: str) -> Finding:
    """A device after a small product on it."""
    try:
        ones = torch.ones(64, 64, device=device)
        right = float((ones @ ones).sum()) == 64**3
    except RuntimeError as error:  # of the driver, or no memory left
        reason = str(error).partition("\n")[0]
        return Finding(DEVICES, name, f"{found}; a product on it fails: {reason}", BROKEN, "Check driver and memory.")
    if not right:
        return Finding(DEVICES, name, f"{found}; a product on it is wrong", BROKEN, "Do not use this device.")
    return Finding(DEVICES, name, found)


def find_storage() -> Iterator[Finding]:
    """The caches, the folder for temporary files, and the working directory, where runs are written."""
    from datasets.config import HF_DATASETS_CACHE
    from huggingface_hub.constants import HF_HOME, HF_HUB_CACHE

    yield _folder("HF_HOME", Path(HF_HOME), sized=False)
    yield _folder("models and data of the Hub", Path(HF_HUB_CACHE))
    yield _folder("datasets as loaded", Path(HF_DATASETS_CACHE))
    yield _folder("embeddings", cache_folder("embeddings"), f" of at most {size_text(default_limit())}")
    yield _folder("image hashes", cache_folder("image_hashes"))
    yield _folder("working directory", Path.cwd(), sized=False)
    yield _temporary()


def _folder(name: str, folder: Path, limit: str = "", *, sized: bool = True) -> Finding:
    """A folder's size, and the room on its disk; of one that is not there yet, of the folder above it."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    size = f"{_size(folder)}{limit}, " if sized and folder.exists() else ""
    size = size or ("" if folder.exists() else "not there yet, ")
    free = shutil.disk_usage(there).free
    found = f"{folder}: {size}{size_text(free)} free"
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        fix = f"Make {there} writable, or set HF_HOME to another folder."
        return Finding(STORAGE, name, f"{found}; cannot be written", BROKEN, fix)
    if free < LITTLE:
        return Finding(
            STORAGE, name, found, NOTE, f"Make room on the disk of {there}, or set HF_HOME to another disk."
        )
    return Finding(STORAGE, name, found, OK)


def _size(folder: Path) -> str:
    """The bytes of a folder's files, links not followed; at least so many where it takes too long to count."""
    until, total, folders = time.monotonic() + PATIENCE, 0, [os.fspath(folder)]
    while folders:
        if time.monotonic() > until:
            return f"more than {size_text(total)}"
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_symlink():
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:  # removed meanwhile, or not ours to read
            continue
    return size_text(total)


def _temporary() -> Finding:
    """The folder for temporary files, by writing one."""
    try:
        folder = Path(tempfile.gettempdir())
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"hfcomp")
    except OSError as error:
        fix = "Set TMPDIR to a folder that can be written and has room."
        return Finding(STORAGE, "temporary files", f"cannot be written: {error}", BROKEN, fix)
    return Finding(STORAGE, "temporary files", f"{folder}: {size_text(shutil.disk_usage(folder).free)} free")


def find_hub_access() -> Iterator[Finding]:
    """The Hub's address, whether it answers, and the user of the token."""
    from huggingface_hub import constants, get_token

    token, address = get_token(), constants.ENDPOINT
    known = "a token is set" if token else "no token: gated and private repositories, and pushing, need one"
    if constants.HF_HUB_OFFLINE:
        fix = "To download, unset HF_HUB_OFFLINE."
        yield Finding(HUB, address, "not asked: HF_HUB_OFFLINE is set", NOTE, fix)
        yield Finding(HUB, "login", known)
        return
    answer = _ask(address, token)
    if isinstance(answer, str):
        yield Finding(HUB, address, f"not reached: {answer}", NOTE, UNREACHED)
        yield Finding(HUB, "login", known)
        return
    status = int(answer.status_code)
    if status >= 500 or status not in (200, 401, 403):
        yield Finding(HUB, address, f"answers with status {status}", NOTE, UNREACHED)
        return
    yield Finding(HUB, address, "reached")
    yield _login(answer, token)


def _login(answer: Any, token: str | None) -> Finding:
    """Who the token is of; one that is refused makes every download fail, of public repositories too."""
    if token is None:
        return Finding(HUB, "login", "none: gated and private repositories, and pushing, need one", NOTE, LOGIN)
    if answer.status_code != 200:
        found = "the token is refused, and with it downloads of public repositories"
        return Finding(HUB, "login", found, BROKEN, f"{LOGIN}, or remove HF_TOKEN")
    facts = answer.json()
    role = ((facts.get("auth") or {}).get("accessToken") or {}).get("role")
    rights = f" with a token of the kind {role!r}" if role else ""
    return Finding(HUB, "login", f"{facts.get('name', 'unknown')}{rights}", OK)


def _ask(address: str, token: str | None) -> Any:
    """The Hub's answer to who one is, or why there is none."""
    from huggingface_hub.utils import build_hf_headers, get_session

    headers = build_hf_headers(token=token or False, library_name="hfcomp")
    try:
        return get_session().get(f"{address}/api/whoami-v2", headers=headers, timeout=TIMEOUT)
    except Exception as error:  # of the HTTP client that this version of huggingface_hub uses
        return TOKEN.sub("TOKEN", f"{type(error).__name__}: {error}")


CHECKS: dict[str, Check] = {
    PACKAGES: find_packages,
    EXTRAS: find_extras,
    DEVICES: find_devices,
    STORAGE: find_storage,
    HUB: find_hub_access,
}


def examine() -> list[Finding]:
    """What this machine has for hfcomp, area by area."""
    return [found for area, check in CHECKS.items() for found in findings_of(area, check)]


def environment_report(found: Sequence[Finding]) -> Report:
    """The findings as tables, what to fix, and whether hfcomp runs."""
    sections = [
        Section("", [_table(title, [one for one in found if one.area == area])]) for area, title in TITLES.items()
    ]
    fixes = [f"{one.name}: {one.fix}" for one in sorted(found, key=lambda one: one.state != BROKEN) if one.fix]
    sections.append(Section("What to do", [Lines(fixes, whole=True)]))
    broken = [one.name for one in found if one.state == BROKEN]
    verdict = f"Broken: {', '.join(broken)}." if broken else "Everything that hfcomp requires works."
    return Report("hfcomp doctor", sections=sections, verdict=[verdict])


def _table(title: str, found: Sequence[Finding]) -> Table:
    rows = [(one.name, "" if one.state == OK else one.state, one.found) for one in found]
    return Table("", (title, "", ""), rows, labels=3)
