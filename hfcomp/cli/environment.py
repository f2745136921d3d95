"""Checks of this machine for `hfcomp doctor`: packages, devices, disks and Hub access."""

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
"""Packages whose versions are shown in addition to those of `package_versions`."""
IMPORTED = ("torch", "transformers", "datasets", "accelerate", "peft")
"""Packages whose import is tested. A wrong torchvision breaks transformers."""
FOR_CONTRIBUTORS = ("dev", "docs", "models")
SPACY_MODELS = "en_core_web_"
LAUNCH = "accelerate launch --num_processes {0} -m hfcomp.cli train RECIPE"
LITTLE = 5 * 10**9
"""Free bytes below which a note is shown. A CLIP model with optimizer state takes about 2 GB."""
PATIENCE = 3.0
"""Seconds to spend on measuring a folder's size."""
TIMEOUT = 5.0
"""Seconds to wait for an answer of the Hub."""
LOGIN = "hf auth login"
UNREACHED = (
    "Check connection, proxy and HF_ENDPOINT. The sandbox, and models and data in local folders, work without the Hub."
)


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        area: Key of `TITLES`.
        name: Name of the checked thing.
        found: Result in words.
        state: `ok`, `note` if only some uses need a fix, or `broken` if all uses need it.
        fix: How to fix it; empty if nothing needs fixing.
    """

    area: str
    name: str
    found: str
    state: Literal["ok", "note", "broken"] = OK
    fix: str = ""


Check = Callable[[], Iterator[Finding]]


def run_check(area: str, check: Check) -> list[Finding]:
    """Collects a check's findings. If the check itself fails, that is a finding too, and earlier ones are kept."""
    findings = []
    try:
        for finding in check():
            findings.append(finding)
    except Exception as error:  # from whatever library is broken here
        reason = f"{type(error).__name__}: {error}"
        findings.append(Finding(area, "check", f"failed with {reason}", BROKEN, f"Fix what {area} failed with."))
    return findings


def find_packages() -> Iterator[Finding]:
    """Checks Python, package versions and their required ranges, and whether packages can be imported."""
    yield _check_python()
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
    yield _check_torchvision()


def find_extras() -> Iterator[Finding]:
    """Lists complete extras, missing packages of the others, and English spaCy pipelines."""
    for extra in importlib.metadata.metadata("hfcomp").get_all("Provides-Extra") or ():
        if extra in FOR_CONTRIBUTORS:
            continue
        missing = [requirement.name for requirement in _requirements(extra) if _problem(requirement)]
        if missing:
            yield Finding(EXTRAS, extra, f"missing: {', '.join(missing)}", NOTE, f'pip install "hfcomp[{extra}]"')
        else:
            yield Finding(EXTRAS, extra, "complete")
    if _version("spacy"):
        names = {package.metadata["Name"] or "" for package in importlib.metadata.distributions()}
        models = sorted(name for name in names if name.replace("-", "_").startswith(SPACY_MODELS))
        pipelines = ", ".join(models) or "none; the parser `rules` needs none"
        fix = "" if models else "python -m spacy download en_core_web_sm"
        yield Finding(EXTRAS, "spaCy pipelines", pipelines, OK if models else NOTE, fix)


def _check_python() -> Finding:
    supported = SpecifierSet(importlib.metadata.metadata("hfcomp").get("Requires-Python") or "")
    version = platform.python_version()
    if supported.contains(version, prereleases=True):
        return Finding(PACKAGES, "python", f"{version} on {platform.platform()}")
    return Finding(PACKAGES, "python", f"{version}, expected {supported}", BROKEN, f"Use Python {supported}.")


def _requirements(extra: str) -> list[Requirement]:
    """Returns hfcomp's requirements on this machine: the required ones, or those that an extra adds."""
    declared = [Requirement(line) for line in importlib.metadata.requires("hfcomp") or ()]
    applicable = [need for need in declared if need.marker is None or need.marker.evaluate({"extra": extra})]
    return applicable if not extra else [need for need in applicable if "extra" in str(need.marker or "")]


def _problem(requirement: Requirement) -> str:
    """Returns why a requirement is not met, or an empty text."""
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


def _check_torchvision() -> Finding:
    version = _version("torchvision")
    if version is None:
        return Finding(PACKAGES, "torchvision", "not installed and not needed: Pillow reads and resizes images")
    reason = _import_error("torchvision")
    if reason:
        fix = "pip uninstall torchvision, or install the version that matches this torch"
        return Finding(PACKAGES, "torchvision", f"{version} does not match this torch: {reason}", BROKEN, fix)
    return Finding(PACKAGES, "torchvision", version)


def find_devices() -> Iterator[Finding]:
    """Checks the CPU, the GPUs with their memory and bf16 support, and says how to train on several."""
    import psutil
    import torch

    memory = psutil.virtual_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processor = f"{count_text(cores, 'core')}, {count_text(torch.get_num_threads(), 'thread')}"
    about = f"{processor}, {size_text(memory.total)} of memory, {size_text(memory.available)} free"
    yield _check_device("CPU", about, torch, "cpu")
    number = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index in range(number):
        yield _check_gpu(torch, index)
    other = torch.accelerator.current_accelerator() if torch.accelerator.is_available() and not number else None
    if other is not None:
        yield _check_device(other.type, f"{torch.accelerator.device_count()} devices", torch, other.type)
    elif not number:
        yield _explain_no_gpu(torch)
    if number > 1:
        usage = "`hfcomp train` uses one of them; plain `python` with several is an error"
        yield Finding(DEVICES, f"{number} GPUs", usage, NOTE, f"To train on all: {LAUNCH.format(number)}")


def _check_gpu(torch: Any, index: int) -> Finding:
    facts = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    with torch.cuda.device(index):
        half = "bf16" if torch.cuda.is_bf16_supported() else "no bf16: use fp16"
    about = f"{facts.name}, {size_text(total)} of memory, {size_text(free)} free, {half}"
    return _check_device(f"cuda:{index}", about, torch, f"cuda:{index}")


def _explain_no_gpu(torch: Any) -> Finding:
    if torch.version.cuda is None and torch.version.hip is None:
        return Finding(DEVICES, "GPU", "none: this torch is built for the CPU", OK)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f", and CUDA_VISIBLE_DEVICES is {visible!r}"
    fix = "If the machine has a GPU, check CUDA_VISIBLE_DEVICES and that `nvidia-smi` lists the GPU."
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
    return Finding(DEVICES, "GPU", f"none is visible: this torch is built for {built}{hidden}", NOTE, fix)


def _check_device(name: str, about: str, torch: Any, device: str) -> Finding:
    """Checks a device with a small matrix product."""
    try:
        ones = torch.ones(64, 64, device=device)
        right = float((ones @ ones).sum()) == 64**3
    except RuntimeError as error:  # a driver error, or out of memory
        reason = str(error).partition("\n")[0]
        return Finding(DEVICES, name, f"{about}; a matrix product fails: {reason}", BROKEN, "Check driver and memory.")
    if not right:
        return Finding(DEVICES, name, f"{about}; a matrix product is wrong", BROKEN, "Do not use this device.")
    return Finding(DEVICES, name, about)


def find_storage() -> Iterator[Finding]:
    """Checks the caches, the folder for temporary files, and the working directory, where runs are written."""
    from datasets.config import HF_DATASETS_CACHE
    from huggingface_hub.constants import HF_HOME, HF_HUB_CACHE

    yield _check_folder("HF_HOME", Path(HF_HOME), sized=False)
    yield _check_folder("Hub models and data", Path(HF_HUB_CACHE))
    yield _check_folder("loaded datasets", Path(HF_DATASETS_CACHE))
    yield _check_folder("embeddings", cache_folder("embeddings"), f" of at most {size_text(default_limit())}")
    yield _check_folder("image hashes", cache_folder("image_hashes"))
    yield _check_folder("working directory", Path.cwd(), sized=False)
    yield _check_temporary_files()


def _check_folder(name: str, folder: Path, limit: str = "", *, sized: bool = True) -> Finding:
    """Measures a folder and the free space on its disk; for a missing folder, on the disk of its closest parent."""
    existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    size = f"{_size(folder)}{limit}, " if sized and folder.exists() else ""
    size = size or ("" if folder.exists() else "does not exist yet, ")
    free = shutil.disk_usage(existing).free
    about = f"{folder}: {size}{size_text(free)} free"
    if not os.access(existing, os.W_OK | os.X_OK) or not existing.is_dir():
        fix = f"Make {existing} writable, or set HF_HOME to another folder."
        return Finding(STORAGE, name, f"{about}; not writable", BROKEN, fix)
    if free < LITTLE:
        fix = f"Free space on the disk of {existing}, or set HF_HOME to another disk."
        return Finding(STORAGE, name, about, NOTE, fix)
    return Finding(STORAGE, name, about, OK)


def _size(folder: Path) -> str:
    """Sums the bytes of a folder's files without following links; returns a lower bound if counting takes too long."""
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
        except OSError:  # removed in the meantime, or not readable by this user
            continue
    return size_text(total)


def _check_temporary_files() -> Finding:
    """Checks the folder for temporary files by writing one."""
    try:
        folder = Path(tempfile.gettempdir())
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"hfcomp")
    except OSError as error:
        fix = "Set TMPDIR to a writable folder with free space."
        return Finding(STORAGE, "temporary files", f"not writable: {error}", BROKEN, fix)
    return Finding(STORAGE, "temporary files", f"{folder}: {size_text(shutil.disk_usage(folder).free)} free")


def find_hub_access() -> Iterator[Finding]:
    """Checks whether the Hub answers at its address, and the user of the token."""
    from huggingface_hub import constants, get_token

    token, address = get_token(), constants.ENDPOINT
    login = "a token is set" if token else "no token: gated and private repositories, and uploads, need one"
    if constants.HF_HUB_OFFLINE:
        fix = "To download, unset HF_HUB_OFFLINE."
        yield Finding(HUB, address, "not contacted: HF_HUB_OFFLINE is set", NOTE, fix)
        yield Finding(HUB, "login", login)
        return
    answer = _ask(address, token)
    if isinstance(answer, str):
        yield Finding(HUB, address, f"not reached: {answer}", NOTE, UNREACHED)
        yield Finding(HUB, "login", login)
        return
    status = int(answer.status_code)
    if status >= 500 or status not in (200, 401, 403):
        yield Finding(HUB, address, f"answers with status {status}", NOTE, UNREACHED)
        return
    yield Finding(HUB, address, "reached")
    yield _check_login(answer, token)


def _check_login(answer: Any, token: str | None) -> Finding:
    """Finds the token's user. With a rejected token every download fails, even from public repositories."""
    if token is None:
        return Finding(HUB, "login", "none: gated and private repositories, and uploads, need one", NOTE, LOGIN)
    if answer.status_code != 200:
        problem = "the Hub refuses the token, so downloads fail even from public repositories"
        return Finding(HUB, "login", problem, BROKEN, f"{LOGIN}, or remove HF_TOKEN")
    facts = answer.json()
    role = ((facts.get("auth") or {}).get("accessToken") or {}).get("role")
    rights = f" with a {role!r} token" if role else ""
    return Finding(HUB, "login", f"{facts.get('name', 'unknown')}{rights}", OK)


def _ask(address: str, token: str | None) -> Any:
    """Asks the Hub for the token's user; returns its answer, or why there is none."""
    from huggingface_hub.utils import build_hf_headers, get_session

    headers = build_hf_headers(token=token or False, library_name="hfcomp")
    try:
        return get_session().get(f"{address}/api/whoami-v2", headers=headers, timeout=TIMEOUT)
    except Exception as error:  # from the HTTP client of this huggingface_hub version
        return TOKEN.sub("TOKEN", f"{type(error).__name__}: {error}")


CHECKS: dict[str, Check] = {
    PACKAGES: find_packages,
    EXTRAS: find_extras,
    DEVICES: find_devices,
    STORAGE: find_storage,
    HUB: find_hub_access,
}


def examine() -> list[Finding]:
    """Runs all checks, area by area."""
    return [finding for area, check in CHECKS.items() for finding in run_check(area, check)]


def environment_report(findings: Sequence[Finding]) -> Report:
    """Reports the findings as tables, the fixes, and whether hfcomp runs."""
    sections = [
        Section("", [_table(title, [finding for finding in findings if finding.area == area])])
        for area, title in TITLES.items()
    ]
    broken_first = sorted(findings, key=lambda finding: finding.state != BROKEN)
    fixes = [f"{finding.name}: {finding.fix}" for finding in broken_first if finding.fix]
    sections.append(Section("What to do", [Lines(fixes, whole=True)]))
    broken = [finding.name for finding in findings if finding.state == BROKEN]
    verdict = f"Broken: {', '.join(broken)}." if broken else "Everything that hfcomp requires works."
    return Report("hfcomp doctor", sections=sections, verdict=[verdict])


def _table(title: str, findings: Sequence[Finding]) -> Table:
    rows = [(finding.name, "" if finding.state == OK else finding.state, finding.found) for finding in findings]
    return Table("", (title, "", ""), rows, labels=3)
