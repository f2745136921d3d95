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
"""Split of a built dataset, unless its plan names another."""
STEPS_FOLDER = "steps"
"""Folder for the earlier steps of a dataset that is built in several steps, each from the output of the previous."""
CHAIN = ".chain.json"
"""File in `STEPS_FOLDER` with the command and the steps of the dataset, see `StepNames`."""
COMMANDS = "commands.json"
"""File in `STEPS_FOLDER` with the arguments of the command that built each configuration."""
HIERARCHY = "hierarchy.json"
"""File with the concept hierarchy of a dataset with levels."""
UNFINISHED = ".build"
"""Folder inside an unfinished build, written by `hfcomp.factory`."""
CARD = "README.md"
ONE_LICENSE = "Their shared card would state the license of only one source."
# Hashing takes about a second per gigabyte. Smaller datasets need no progress bar.
BYTES_WITHOUT_A_BAR = 2**30
THREADS = 4
# Keys of a manifest. A damaged manifest keeps enough of them to distinguish it from another program's file.
_MARKS = (b'"checksum"', b'"plan"', b'"rows"', b'"schema_version"', b'"set_aside"', b'"shards"')


def rebuild_advice(folder: Path) -> str:
    return f"Delete the folder and re-run {_command(folder)}, or download the dataset again."


def restore_advice(folder: Path) -> str:
    """The end of a sentence that says how to restore one file of a build."""
    return f"re-run {_command(folder)}, which recreates this file, or download the dataset again."


def _command(folder: Path) -> str:
    card = card_above(folder)
    return f"the `hfcomp build` command {f'in {card}' if card else 'that built it'}"


def card_above(folder: Path) -> Path | None:
    # A build may be a configuration, a part or a step of a dataset. The dataset's card, which contains the command, is
    # then in a folder above it; `steps/CONFIG/STEP` is three folders down.
    cards = (place / CARD for place in (folder, *folder.absolute().parents[:4]))
    return next((path for path in cards if path.is_file() and b"hfcomp build" in path.read_bytes()), None)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Reads the manifest of a finished build; returns None if the folder is not a build.

    Raises:
        ValueError: If the build is unfinished, or its manifest is missing or damaged.
    """
    if (folder / UNFINISHED).is_dir():
        raise ValueError(
            f"{folder} is an interrupted build: some of its rows are missing. Re-run its `hfcomp build` command to "
            "resume it, then load the dataset."
        )
    path, ours = folder / MANIFEST, (folder / SET_ASIDE_FILE).is_file()
    if not path.is_file():
        if ours:
            raise ValueError(lost_manifest(folder))
        return None
    try:
        content = read_checked(path, rebuild_advice(folder))
    except ValueError:
        # Other programs write files with this name too, so a file that is not JSON may not be ours. If it contains
        # several of our keys, it is a damaged manifest, and the dataset must not be read unchecked.
        if ours or sum(mark in path.read_bytes() for mark in _MARKS) > 1:
            raise
        return None
    if isinstance(content, dict) and {"plan", "shards"} <= content.keys():
        return content
    if ours:
        raise ValueError(f"{path} is damaged: it lacks `plan` or `shards`. {rebuild_advice(folder)}")
    return None


def split_of(manifest: Mapping[str, Any]) -> str:
    return manifest["plan"].get("split", TRAIN)


def is_build(folder: Path) -> bool:
    """Whether a folder holds a build, finished or not."""
    return (folder / SET_ASIDE_FILE).is_file() or (folder / UNFINISHED / PLAN).is_file()


def lost_manifest(folder: Path) -> str:
    return (
        f"{folder / MANIFEST} is missing. The folder is a dataset built by `hfcomp build`, and only that file shows "
        f"whether its rows are complete. Restore it from a backup. {rebuild_advice(folder)}"
    )


def configurations(folder: Path) -> list[Path]:
    """Lists the folders of a dataset's configurations or parts; the folder itself if it has none."""
    views = read_views(folder)
    if views is not None:
        return [folder / part for part in part_names(views)]
    inside = [] if not folder.is_dir() or is_build(folder) else sorted(filter(is_build, folder.iterdir()))
    return inside or [folder]


class StepNames(NamedTuple):
    """Steps of a dataset that is built in several steps.

    Attributes:
        command: Command that builds the dataset, without options.
        steps: Names of the steps in order. In a dataset with configurations, each configuration has all steps: the
            last step is the folder of the configuration, and the others are in `steps/CONFIG/`. In a dataset of parts
            (see `views`), these are the steps in `steps/` that precede the parts.
    """

    command: str
    steps: tuple[str, ...]

    def folder(self, folder: Path, config: str, step: str) -> Path:
        """The folder in which a step of a configuration is built."""
        return folder / config if step == self.steps[-1] else folder / STEPS_FOLDER / config / step


# Before hfcomp wrote CHAIN, two commands had steps. Both stay here, because their datasets can still be read.
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
    # Either of two files marks a step: a step that lost its manifest must be reported as damaged, not disappear.
    marked = {path.parent for name in (MANIFEST, SET_ASIDE_FILE) for path in (folder / STEPS_FOLDER).rglob(name)}
    return sorted(marked)


def check_finished(folder: Path) -> None:
    """Checks that all steps of all configurations of a dataset are finished; folders without steps pass."""
    # `VIEWS` is written last. A killed build leaves complete, valid Parquet files of some configurations, which would
    # load silently with fewer rows than the card says.
    names = step_names(folder)
    if is_build(folder / STEPS_FOLDER / names.steps[0]) and not (folder / VIEWS).is_file():
        raise ValueError(
            f"{folder} is incomplete: {VIEWS}, which is written last, is missing. Re-run the original "
            f"`{names.command} --output {folder}` command without --until; finished steps are kept."
        )
    ends = {config: _last_step(folder, config, names) for config in _begun_configurations(folder, names)}
    missing = [f"the {step} of {config}" for config, (step, is_done) in ends.items() if not is_done]
    if missing:
        raise ValueError(
            f"{folder} is incomplete: it lacks {', '.join(missing)}. Re-run the original `{names.command} --output "
            f"{folder}` command with --until {names.steps[-1]} or without --until; finished steps are kept."
        )
    if ends and configurations(folder) == [folder]:
        files = (names.folder(folder, config, step) / SET_ASIDE_FILE for config, (step, _) in ends.items())
        raise ValueError(f"{folder} has no rows; the reason for each missing row is in {', '.join(map(str, files))}.")


def check_one_source(folder: Path) -> None:
    """Checks that all configurations of a dataset come from one source; folders without steps pass."""
    names = step_names(folder)
    firsts = {config: names.folder(folder, config, names.steps[0]) for config in _begun_configurations(folder, names)}
    manifests = {config: read_manifest(first) for config, first in firsts.items()}
    sources = {config: manifest["plan"]["source"] for config, manifest in manifests.items() if manifest}
    first = next(iter(sources), "")
    other = next((config for config in sources if sources[config] != sources[first]), None)
    if other:
        rows = " and ".join(f"{config} ({sources[config]['rows']:,} rows)" for config in (first, other))
        raise ValueError(
            f"{folder} has configurations from different sources: {rows}. {ONE_LICENSE} Delete one of them, in "
            f"{folder} and in {folder / STEPS_FOLDER}, and rebuild it from the source of the others."
        )


def _last_step(folder: Path, config: str, names: StepNames) -> tuple[str, bool]:
    """The first unfinished step of a configuration, otherwise the last one; and whether it is finished."""
    for step in names.steps:
        place = names.folder(folder, config, step)
        if not (place / MANIFEST).is_file() or (place / UNFINISHED).is_dir():
            return step, False
        if (read_manifest(place) or {}).get("rows") == 0:
            break  # no rows are left for the later steps, so they never begin
    return step, True


def set_of_part(folder: Path) -> Path | None:
    """The dataset to which a folder belongs as a part; None if it is not a part."""
    whole = folder.absolute().parent
    return whole if folder.absolute().name in part_names(read_views(whole) or {}) else None


def view_files(folder: Path, view: View, split: str) -> list[Path]:
    """Returns the Parquet files of one split of a view, each verified against the manifest of its part."""
    if split not in view.splits:
        raise ValueError(f"{folder}: found the split {split!r}, expected one of: {', '.join(view.splits)}.")
    files: list[Path] = []
    for part in view.splits[split]:
        shards = checked_shards(folder / part)
        if shards is None:
            raise ValueError(f"{folder / part}, a part of the dataset, is missing. {rebuild_advice(folder)}")
        files += shards
    if not files:
        raise ValueError(f"{folder}: the split {split!r} has no rows. Build the dataset from more images.")
    return files


def content_hash(folder: Path, views: Mapping[str, View]) -> str:
    # The manifests contain the hash of every file, so these few small files identify gigabytes of data.
    paths = [folder / VIEWS, *(folder / part / MANIFEST for part in part_names(views))]
    return hashlib.sha256("".join(map(file_hash, paths)).encode()).hexdigest()


def configuration(folder: Path, config: str | None) -> Path:
    """The folder of a configuration of a built dataset, or of the dataset itself if it has no configurations."""
    known = configurations(folder)
    is_only = config is None and len(known) == 1
    chosen = known[0] if is_only or known == [folder] else next((path for path in known if path.name == config), None)
    if (
        is_only
        or known == [folder]
        or (chosen is None and config in _begun_configurations(folder, step_names(folder)))
    ):
        check_finished(folder)
    if chosen is None:
        names = ", ".join(path.name for path in known)
        raise ValueError(f"{folder}: found the configuration {config!r}, expected one of: {names}.")
    return chosen


def checked_shards(path: Path) -> list[Path] | None:
    """Lists the files of a built dataset in order, each verified against the manifest.

    All bytes are read, but only once per process as long as a file's size and modification time stay the same. If
    several processes were launched together, only the first process on each machine reads them.

    Returns:
        The shards in a folder, or only `path` if it is a shard; None if it is not part of a built dataset.

    Raises:
        ValueError: If a file is missing, damaged or not part of the build. The message names the file and the fix.
    """
    data_folders = (place for place in (path, path.parent) if place.name == DATA and is_build(place.parent))
    inside = next((place.parent for place in data_folders), None)
    folder = inside or path
    manifest = read_manifest(folder) if folder.is_dir() else None
    if manifest is None:
        return None
    shards = [shard for shard in manifest["shards"] if path.is_dir() or folder / shard["file"] == path]
    if path.is_dir():
        check_no_others(folder, manifest)
    # All processes on a machine read the same disk. If each of them hashed the whole dataset, checking would take many
    # times as long and detect nothing more. Each machine checks its own copy, because its disk may differ.
    if int(os.environ.get("LOCAL_RANK", "0")) == 0:
        _check_all(folder, shards)
    return [folder / shard["file"] for shard in shards]


def check_no_others(folder: Path, manifest: dict[str, Any]) -> None:
    """Checks that all shards exist and that there are no others."""
    known = {folder / shard["file"] for shard in manifest["shards"]}
    for path in sorted(known):
        if not path.is_file():
            raise ValueError(f"{path} is missing: {restore_advice(folder)}")
    # `load_dataset` reads every file in the folder that matches the card's pattern, so a stray file would add rows.
    for path in sorted({*(folder / DATA).glob("*.parquet")} - known):
        raise ValueError(f"{path} is not part of this build: {MANIFEST} does not list it. Remove it.")


def check_shard(folder: Path, shard: dict[str, Any]) -> None:
    path = folder / shard["file"]
    facts = path.stat()
    actual = _known_hash(path, facts.st_size, facts.st_mtime_ns)
    if actual != shard["sha256"]:
        raise ValueError(
            f"{path} is damaged: found sha256 {actual}, expected {shard['sha256']} from {MANIFEST}. Remove it and "
            f"{restore_advice(folder)}"
        )


def check_set_aside(folder: Path, manifest: dict[str, Any]) -> None:
    """Checks the list of rows that were set aside; builds of earlier hfcomp versions have no hash of it."""
    path = folder / SET_ASIDE_FILE
    expected = manifest.get("set_aside_sha256")
    if expected and (not path.is_file() or file_hash(path) != expected):
        raise ValueError(
            f"{path} is missing or damaged: expected sha256 {expected} from {MANIFEST}. Remove it and "
            f"{restore_advice(folder)}"
        )


# Size and time are arguments so that they become part of the cache key: a changed file is hashed again.
@lru_cache(maxsize=100_000)
def _known_hash(path: Path, size: int, time: int) -> str:
    return file_hash(path)


def _check_all(folder: Path, shards: list[dict[str, Any]]) -> None:
    sizes = [(folder / shard["file"]).stat().st_size for shard in shards]
    hidden = None if sum(sizes) > BYTES_WITHOUT_A_BAR else True  # None: tqdm shows the bar only in a terminal
    bar = tqdm(total=sum(sizes), desc=f"checking {folder.name}", unit="B", unit_scale=True, disable=hidden)
    with bar, ThreadPoolExecutor(THREADS) as pool:
        for size, _ in zip(sizes, pool.map(lambda shard: check_shard(folder, shard), shards), strict=True):
            bar.update(size)
