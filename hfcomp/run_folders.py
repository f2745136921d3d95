"""Run folders: a new folder or an unfinished run to resume, locked while the run lives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from hfcomp import __version__
from hfcomp.distributed import fail_together, gather_objects, rank
from hfcomp.reading import read_yaml
from hfcomp.writing import remove_unfinished, try_lock, write_text

CONFIG_FILE = "config.yaml"
FINISHED_FILE = "finished"
ADAPTER_FOLDER = "adapter"  # next to the merged model, in the folder of a trained model
LOST_CONFIG = "Restore it from a copy, remove the folder, or choose another --output_dir."
# Files that mark a run folder. If the configuration is missing but another one exists, the run's values are unknown.
RUN_MARKERS = (CONFIG_FILE, "overlap.json", FINISHED_FILE)
# Seconds for the data-loading workers of a killed run to end. Until then they hold its lock.
PATIENCE = 10

Log = Callable[[str], None]
WantsMore = Callable[[Path], bool]
MayChange = Callable[[str], bool]


@contextmanager
def run_folder(
    wanted: Path, given: dict[str, Any], log: Log, *, may_change: MayChange, wants_more: WantsMore
) -> Iterator[Path]:
    """Locks the folder of a run and writes `given` into its `config.yaml`; the main process decides for all.

    Looks in `wanted` and its numbered neighbors (`wanted-2`, ...) for a run to resume. A run resumes if no living
    process holds it, its values are the same except for fields that `may_change`, and it is either unfinished or
    finished but `wants_more`. If there is none, uses the first free name. Other runs are not touched. Sets
    `output_dir` in `given` to the folder.
    """
    # The kernel owns the lock and releases it when a run is killed.
    lock, folder = None, wanted
    with fail_together():
        if rank() == 0:
            folder, lock = _resume_run(wanted, given, log, may_change, wants_more) or _free(wanted)
        folder = gather_objects(folder)[0]
    given["output_dir"] = str(folder)
    try:
        if lock is not None:
            # A killed run leaves half-written files under temporary names.
            remove_unfinished(folder, "**/*")
            write_text(folder / CONFIG_FILE, yaml.safe_dump(given, sort_keys=True))
        yield folder
    finally:
        if lock is not None:
            lock.release()


def finish(folder: Path) -> None:
    """Marks a run as finished. This is the last step: a run killed before it resumes."""
    write_text(folder / FINISHED_FILE, f"hfcomp {__version__}\n")


def _numbered_paths(wanted: Path) -> Iterator[Path]:
    yield wanted
    for number in range(2, 10_000):
        yield wanted.with_name(f"{wanted.name}-{number}")


def _resume_run(
    wanted: Path, given: dict[str, Any], log: Log, may_change: MayChange, wants_more: WantsMore
) -> tuple[Path, FileLock] | None:
    # One directory listing replaces thousands of lookups of names that do not exist.
    names = set(os.listdir(wanted.parent)) if wanted.parent.is_dir() else set()
    for path in (path for path in _numbered_paths(wanted) if path.name in names):
        state = _state(path, wants_more)
        if state is None:
            continue
        changed = _changed_values(path, given, may_change)
        if changed:
            article = "an" if state == "unfinished" else "a"
            log(f"{path} holds {article} {state} run with other values ({changed}); leaving it untouched")
            continue
        lock = try_lock(path)
        if lock is None:
            log(f"{path} is in use; a run that was killed releases it within {PATIENCE} seconds")
            lock = try_lock(path, PATIENCE)
        if lock is None:
            log(f"{path} is in use by another process; leaving it untouched")
        elif _state(path, wants_more) is None:
            # The run finished while this process waited for its lock.
            lock.release()
        else:
            # From here on, a killed process leaves the run unfinished.
            (path / FINISHED_FILE).unlink(missing_ok=True)
            log(f"resuming the {state} run in {path}")
            return path, lock
    return None


def _state(folder: Path, wants_more: WantsMore) -> str | None:
    """`unfinished`, `finished`, or `None` if no run in the folder can resume."""
    if not (folder / CONFIG_FILE).exists():
        return None
    if not (folder / FINISHED_FILE).exists():
        return "unfinished"
    return "finished" if wants_more(folder) else None


def _free(wanted: Path) -> tuple[Path, FileLock]:
    def is_taken(folder: Path) -> bool:
        return any((folder / name).exists() for name in RUN_MARKERS)

    for path in _numbered_paths(wanted):
        lock = None if is_taken(path) else try_lock(path)
        if lock is None:
            continue
        # Checks again under the lock: another process may have started and finished a run in between.
        if not is_taken(path):
            return path, lock
        lock.release()
    raise FileExistsError(f"{wanted} and its 9,998 numbered variants are taken. Choose another --output_dir.")


def _changed_values(folder: Path, given: dict[str, Any], may_change: MayChange) -> str:
    """The fields that may not change but have different values, as `name: before -> now`."""
    try:
        before = read_yaml(folder / CONFIG_FILE)
    except ValueError as error:
        raise ValueError(f"{error} {LOST_CONFIG}") from error
    if not isinstance(before, dict):
        raise ValueError(f"{folder / CONFIG_FILE} is damaged: expected a mapping of fields. {LOST_CONFIG}")
    changed = [key for key in sorted({*before, *given}) if before.get(key) != given.get(key) and not may_change(key)]
    return ", ".join(f"{key}: {before.get(key)!r} -> {given.get(key)!r}" for key in changed)
