"""Datasets built by `hfcomp build`: their files, steps and configurations, and checks against the manifest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tqdm.auto import tqdm

from hfcomp.checksums import file_hash, read_checked
from hfcomp.data.built_sets.views import HOW_TO_FIX, VIEWS, View, part_names, read_views

MANIFEST = "manifest.json"
SET_ASIDE_FILE = "set_aside.jsonl"
PLAN = "plan.json"
DATA = "data"
ROWS_PER_SHARD = 1000
TRAIN = "train"
"""The split of a set, unless its plan names another."""
STEPS_FOLDER = "steps"
"""Holds the earlier steps of a set that is built in several, each from what the one before made."""
CHAIN = ".chain.json"
"""In `STEPS_FOLDER`: the command and the steps of the set, see `StepNames`."""
COMMANDS = "commands.json"
"""In `STEPS_FOLDER`: the words of the command that built each configuration."""
HIERARCHY = "hierarchy.json"
"""The hierarchy of concepts of a set with levels."""
UNFINISHED = ".build"
"""In the folder of a build that is not finished; `hfcomp.factory` writes it."""
CARD = "README.md"
ONE_LICENSE = "Their one card would state the license of one source."
# Hashing takes about a second per gigabyte. Less than this needs no bar.
BYTES_WITHOUT_A_BAR = 2**30
THREADS = 4
# Keys of a manifest. A damaged one keeps enough of them to tell it from another program's file.
_MARKS = (b'"checksum"', b'"plan"', b'"rows"', b'"schema_version"', b'"set_aside"', b'"shards"')


def build_anew(folder: Path) -> str:
    return f"Delete the folder and give {_command(folder)} again, or fetch the set again."


def make_anew(folder: Path) -> str:
    """The end of a sentence: how to restore one file of a build."""
    return f"give {_command(folder)} again, which recreates this file, or download the set again."


def _command(folder: Path) -> str:
    card = card_above(folder)
    return f"the `hfcomp build` command {f'in {card}' if card else 'that made it'}"


def card_above(folder: Path) -> Path | None:
    # A build may be a configuration, a part or a step of a set. The set's card, with the command, is then in a folder
    # above it; `steps/CONFIG/STEP` is three folders down.
    cards = (place / CARD for place in (folder, *folder.absolute().parents[:4]))
    return next((path for path in cards if path.is_file() and b"hfcomp build" in path.read_bytes()), None)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a finished build; None for a folder of something else.

    Raises:
        ValueError: for an unfinished build, or a missing or damaged manifest.
    """
    if (folder / UNFINISHED).is_dir():
        raise ValueError(
            f"{folder} is an interrupted build: some of its rows are missing. Repeat the `hfcomp build` command to "
            "resume it, then load it."
        )
    path, ours = folder / MANIFEST, (folder / SET_ASIDE_FILE).is_file()
    if not path.is_file():
        if ours:
            raise ValueError(lost_manifest(folder))
        return None
    try:
        content = read_checked(path, build_anew(folder))
    except ValueError:
        # Other programs write files of this name too, so a file that is not JSON may not be ours. If it holds several
        # of our keys, it is a damaged manifest, and the set must not be read without its check.
        if ours or sum(mark in path.read_bytes() for mark in _MARKS) > 1:
            raise
        return None
    if isinstance(content, dict) and {"plan", "shards"} <= content.keys():
        return content
    if ours:
        raise ValueError(f"{path} is damaged: expected `plan` and `shards` in it. {build_anew(folder)}")
    return None


def split_of(manifest: Mapping[str, Any]) -> str:
    return manifest["plan"].get("split", TRAIN)


def is_build(folder: Path) -> bool:
    """Whether a folder holds a build, finished or not."""
    return (folder / SET_ASIDE_FILE).is_file() or (folder / UNFINISHED / PLAN).is_file()


def lost_manifest(folder: Path) -> str:
    return (
        f"{folder / MANIFEST} is missing: this is a set of `hfcomp build`, and whether its rows are whole is in that "
        f"file alone. Put it back from a copy. {build_anew(folder)}"
    )


def configurations(folder: Path) -> list[Path]:
    """The folders of a built set: itself, or those of its configurations or parts; itself for any other set."""
    views = read_views(folder)
    if views is not None:
        return [folder / part for part in part_names(views)]
    inside = [] if not folder.is_dir() or is_build(folder) else sorted(filter(is_build, folder.iterdir()))
    return inside or [folder]


class StepNames(NamedTuple):
    """How a set is built in several steps.

    Attributes:
        command: The command that builds it, without options.
        steps: Their names in order. Of a set with configurations, each has all of them: the last one is the folder of
            the configuration, the others are in `steps/CONFIG/`. Of a set of parts (see `views`), they are those in
            `steps/`, before the parts.
    """

    command: str
    steps: tuple[str, ...]

    def folder(self, folder: Path, config: str, step: str) -> Path:
        """Where a step of a configuration is built."""
        return folder / config if step == self.steps[-1] else folder / STEPS_FOLDER / config / step


# Before hfcomp wrote CHAIN there were two commands with steps. Their sets are still read, so both stay here.
_PAIRS = StepNames("hfcomp build concretebatch", ("targets", "captions", "images"))
_PARTS = StepNames("hfcomp build magic", ("concepts", "captions"))


def step_names(folder: Path) -> StepNames:
    path = folder / STEPS_FOLDER / CHAIN
    if path.is_file():
        content = read_checked(path, HOW_TO_FIX)
        return StepNames(content["command"], tuple(content["steps"]))
    return _PARTS if is_build(folder / STEPS_FOLDER / _PARTS.steps[0]) else _PAIRS


def _begun_configurations(folder: Path, names: StepNames) -> list[str]:
    return [place.name for place in sorted((folder / STEPS_FOLDER).glob("*")) if is_build(place / names.steps[0])]


def step_builds(folder: Path) -> list[Path]:
    # Either of two files marks a step: a step that lost its manifest must show up as damaged, not disappear.
    marked = {path.parent for name in (MANIFEST, SET_ASIDE_FILE) for path in (folder / STEPS_FOLDER).rglob(name)}
    return sorted(marked)


def check_finished(folder: Path) -> None:
    """Checks that no configuration of a set that is built in steps waits for one of them; any other folder passes."""
    # `VIEWS` is written last. A killed build leaves whole, valid Parquet files of some configurations, which would
    # load silently and have fewer rows than the card says.
    names = step_names(folder)
    if is_build(folder / STEPS_FOLDER / names.steps[0]) and not (folder / VIEWS).is_file():
        raise ValueError(
            f"{folder} is not finished: it lacks {VIEWS}, which is written last. Give the `{names.command} "
            f"--output {folder}` command that began it again, without --until: what is done is kept."
        )
    ends = {config: _last_step(folder, config, names) for config in _begun_configurations(folder, names)}
    missing = [f"the {step} of {config}" for config, (step, is_done) in ends.items() if not is_done]
    if missing:
        raise ValueError(
            f"{folder} is not finished: it lacks {', '.join(missing)}. Give the `{names.command} --output "
            f"{folder}` command that began it again, with --until {names.steps[-1]} or without --until: what is done "
            "is kept."
        )
    if ends and configurations(folder) == [folder]:
        files = (names.folder(folder, config, step) / SET_ASIDE_FILE for config, (step, _) in ends.items())
        raise ValueError(f"{folder} has no row; the reason for each is in {', '.join(map(str, files))}.")


def check_one_source(folder: Path) -> None:
    """Checks that the configurations of a set that is built in steps have one source; any other folder passes."""
    names = step_names(folder)
    firsts = {config: names.folder(folder, config, names.steps[0]) for config in _begun_configurations(folder, names)}
    manifests = {config: read_manifest(first) for config, first in firsts.items()}
    sources = {config: manifest["plan"]["source"] for config, manifest in manifests.items() if manifest}
    first = next(iter(sources), "")
    other = next((config for config in sources if sources[config] != sources[first]), None)
    if other:
        rows = " and ".join(f"{config} ({sources[config]['rows']:,} rows)" for config in (first, other))
        raise ValueError(
            f"{folder} has configurations of different sources: {rows}. {ONE_LICENSE} Delete one of them, in {folder} "
            f"and in {folder / STEPS_FOLDER}, and build it again from the source of the others."
        )


def _last_step(folder: Path, config: str, names: StepNames) -> tuple[str, bool]:
    """The first step of a configuration that is not done, or the last that is; and whether it is done."""
    for step in names.steps:
        place = names.folder(folder, config, step)
        if not (place / MANIFEST).is_file() or (place / UNFINISHED).is_dir():
            return step, False
        if (read_manifest(place) or {}).get("rows") == 0:
            break  # nothing is left for the steps behind it, which are never begun
    return step, True


def set_of_part(folder: Path) -> Path | None:
    """The set that a folder is a part of; None for any other folder."""
    whole = folder.absolute().parent
    return whole if folder.absolute().name in part_names(read_views(whole) or {}) else None


def view_files(folder: Path, view: View, split: str) -> list[Path]:
    """The Parquet files of a split of a view, each verified against the manifest of its part."""
    if split not in view.splits:
        raise ValueError(f"{folder} has no split {split!r}; it has: {', '.join(view.splits)}. Choose one.")
    files: list[Path] = []
    for part in view.splits[split]:
        shards = checked_shards(folder / part)
        if shards is None:
            raise ValueError(f"{folder / part} is missing: it is a part of the set. {build_anew(folder)}")
        files += shards
    if not files:
        raise ValueError(f"{folder}: the split {split!r} has no rows. Build the set from more images.")
    return files


def content_hash(folder: Path, views: Mapping[str, View]) -> str:
    # The manifests hold the hash of every file, so these few small files identify gigabytes.
    paths = [folder / VIEWS, *(folder / part / MANIFEST for part in part_names(views))]
    return hashlib.sha256("".join(map(file_hash, paths)).encode()).hexdigest()


def configuration(folder: Path, config: str | None) -> Path:
    """The folder of a built set: that of one of its configurations, if it has such."""
    known = configurations(folder)
    is_only = config is None and len(known) == 1
    found = known[0] if is_only or known == [folder] else next((one for one in known if one.name == config), None)
    if is_only or known == [folder] or (found is None and config in _begun_configurations(folder, step_names(folder))):
        check_finished(folder)
    if found is None:
        names = ", ".join(one.name for one in known)
        raise ValueError(f"{folder} has the configurations {names}; found {config!r}. Name one of them.")
    return found


def checked_shards(path: Path) -> list[Path] | None:
    """The files of a built set, in order, each verified against the manifest.

    All bytes are read, once in a process while files keep their size and time, and in a launch of several processes
    only by the first of a machine.

    Returns:
        The shards in a folder, or one where `path` is a shard; None if it is not part of a built set.

    Raises:
        ValueError: naming the file that is missing, damaged or not of the build, and how to fix it.
    """
    inside = next((one.parent for one in (path, path.parent) if one.name == DATA and is_build(one.parent)), None)
    folder = inside or path
    manifest = read_manifest(folder) if folder.is_dir() else None
    if manifest is None:
        return None
    shards = [one for one in manifest["shards"] if path.is_dir() or folder / one["file"] == path]
    if path.is_dir():
        check_no_others(folder, manifest)
    # The processes of a machine read the same disk. If each of them hashed the whole set, it would take many times as
    # long and find nothing more. Each machine checks, because its disk may differ.
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        _check_all(folder, shards)
    return [folder / one["file"] for one in shards]


def check_no_others(folder: Path, manifest: dict[str, Any]) -> None:
    """Checks that all shards are there, and no others."""
    known = {folder / one["file"] for one in manifest["shards"]}
    for path in sorted(known):
        if not path.is_file():
            raise ValueError(f"{path} is missing: {make_anew(folder)}")
    # `load_dataset` reads every file of the folder that fits the card's pattern, so a stray one would add rows.
    for path in sorted({*(folder / DATA).glob("*.parquet")} - known):
        raise ValueError(f"{path} is not part of this build: {MANIFEST} does not list it. Remove it.")


def check_shard(folder: Path, shard: dict[str, Any]) -> None:
    path = folder / shard["file"]
    facts = path.stat()
    found = _known_hash(path, facts.st_size, facts.st_mtime_ns)
    if found != shard["sha256"]:
        raise ValueError(
            f"{path} is damaged: expected sha256 {shard['sha256']} as in {MANIFEST}, found {found}. Remove it and "
            f"{make_anew(folder)}"
        )


def check_set_aside(folder: Path, manifest: dict[str, Any]) -> None:
    """Checks the list of the rows that were set aside; what an earlier hfcomp built has no hash of it."""
    path = folder / SET_ASIDE_FILE
    expected = manifest.get("set_aside_sha256")
    if expected and (not path.is_file() or file_hash(path) != expected):
        raise ValueError(
            f"{path} is missing or damaged: expected sha256 {expected} as in {MANIFEST}. Remove it and "
            f"{make_anew(folder)}"
        )


# Size and time are arguments so that they are part of the cache's key: a file that changes is hashed again.
@lru_cache(maxsize=100_000)
def _known_hash(path: Path, size: int, time: int) -> str:
    return file_hash(path)


def _check_all(folder: Path, shards: list[dict[str, Any]]) -> None:
    sizes = [(folder / one["file"]).stat().st_size for one in shards]
    hidden = None if sum(sizes) > BYTES_WITHOUT_A_BAR else True  # None: shown in a terminal alone
    bar = tqdm(total=sum(sizes), desc=f"checking {folder.name}", unit="B", unit_scale=True, disable=hidden)
    with bar, ThreadPoolExecutor(THREADS) as pool:
        for size, _ in zip(sizes, pool.map(lambda one: check_shard(folder, one), shards), strict=True):
            bar.update(size)
