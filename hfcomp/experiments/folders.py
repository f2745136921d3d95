"""The folder of a run: a new one or an unfinished one that goes on, held by a lock as long as the run lives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from filelock import FileLock

from hfcomp import __version__
from hfcomp.reading import read_yaml
from hfcomp.writing import remove_unfinished, try_lock, write_text

CONFIG_FILE = "config.yaml"
FINISHED_FILE = "finished"
LOST_CONFIG = "Put it back from a copy, remove the folder, or choose another --output_dir."
# A folder with one of the others and without a configuration holds a run of unknown values.
OF_A_RUN = (CONFIG_FILE, "overlap.json", FINISHED_FILE)
# Seconds in which the data-loading workers of a killed run end; until then they hold its lock.
PATIENCE = 10
# Fields that do not change what is trained: a run may go on with other values of these. Stored outcomes know the
# evaluation that they are of.
FREE_FIELDS = {
    "output_dir",
    "mini_batch_size",
    "disable_tqdm",
    "save_strategy",
    "save_steps",
    "save_total_limit",
    "report_to",
    "use_cpu",
    "allow_urls",
    "url_timeout",
    "ddp_timeout",
}
FREE_PREFIXES = ("dataloader_", "logging_", "evaluation")
BINDING_FIELDS = {"dataloader_drop_last"}  # though of such a prefix

Say = Callable[[str], None]


def _never(folder: Path) -> bool:
    return False


@contextmanager
def run_folder(
    wanted: Path, given: dict[str, Any], state: PartialState, *, wants_more: Callable[[Path], bool] = _never
) -> Iterator[Path]:
    """Holds the folder of a run, and writes `given` into its `config.yaml`.

    An unfinished run of the same values that no living process holds goes on, in `wanted` or in one of its numbered
    neighbours (`wanted-2`, ...). Otherwise the first free one of these names is taken. Finished runs, and unfinished
    ones of other values, are left alone. The lock is the kernel's: a killed run holds none.

    Args:
        wanted: folder that the run asks for.
        given: every field of the run; `output_dir` becomes the folder that is taken.
        state: the processes; the main one decides for all.
        wants_more: whether a finished run in a folder lacks something that is asked for now, so that it goes on too.
    """
    lock, chosen = None, wanted
    if state.is_main_process:
        chosen, lock = _unfinished(wanted, given, state.print, wants_more) or _free(wanted)
    if state.num_processes > 1:
        chosen = Path(broadcast_object_list([str(chosen)])[0])
    given["output_dir"] = str(chosen)
    try:
        if state.is_main_process:
            remove_unfinished(chosen, "**/*")
            write_text(chosen / CONFIG_FILE, yaml.safe_dump(given, sort_keys=True))
        yield chosen
    finally:
        if lock is not None:
            lock.release()


def finish(folder: Path) -> None:
    """Marks a run as finished; written last of all, so that a run killed before goes on."""
    write_text(folder / FINISHED_FILE, f"hfcomp {__version__}\n")


def _numbered(wanted: Path) -> Iterator[Path]:
    yield wanted
    for number in range(2, 10_000):
        yield wanted.with_name(f"{wanted.name}-{number}")


def _unfinished(
    wanted: Path, given: dict[str, Any], say: Say, wants_more: Callable[[Path], bool]
) -> tuple[Path, FileLock] | None:
    there = set(os.listdir(wanted.parent)) if wanted.parent.is_dir() else set()
    for path in (path for path in _numbered(wanted) if path.name in there):
        kind = _kind(path, wants_more)
        if kind is None:
            continue
        changed = _changed_values(path, given)
        if changed:
            say(f"{path} holds {kind} run of other values ({changed}); it is left alone")
            continue
        lock = try_lock(path) or _lock_of_survivors(path, say)
        if lock is None:
            say(f"{path} is in use by another process; it is left alone")
        elif _kind(path, wants_more) is None:  # it ended while its lock was waited for
            lock.release()
        else:
            (path / FINISHED_FILE).unlink(missing_ok=True)  # killed now, it is unfinished again
            say(f"going on with the{kind[kind.index(' ') :]} run in {path}")
            return path, lock
    return None


def _kind(folder: Path, wants_more: Callable[[Path], bool]) -> str | None:
    """What errors call the run in a folder; `None` where none goes on."""
    if not (folder / CONFIG_FILE).exists():
        return None
    if not (folder / FINISHED_FILE).exists():
        return "an unfinished"
    return "a finished" if wants_more(folder) else None


def _free(wanted: Path) -> tuple[Path, FileLock]:
    for path in _numbered(wanted):
        if _holds_run(path):
            continue
        lock = try_lock(path)
        if lock is None:
            continue
        if not _holds_run(path):
            return path, lock
        lock.release()  # another process took it in between
    raise FileExistsError(f"{wanted} and its 9,998 numbered neighbours are taken. Choose another --output_dir.")


def _holds_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in OF_A_RUN)


def _lock_of_survivors(folder: Path, say: Say) -> FileLock | None:
    say(f"{folder} is in use; a run that was killed gives it free within {PATIENCE} seconds")
    return try_lock(folder, PATIENCE)


def _changed_values(folder: Path, given: dict[str, Any]) -> str:
    """The fields whose values differ and change what is trained, as `name: before -> now`."""
    try:
        before = read_yaml(folder / CONFIG_FILE)
    except ValueError as error:
        raise ValueError(f"{error} {LOST_CONFIG}") from error
    if not isinstance(before, dict):
        raise ValueError(f"{folder / CONFIG_FILE} is damaged: expected the fields of a run. {LOST_CONFIG}")
    names = sorted(key for key in {*before, *given} if not _is_free(key))
    changed = [key for key in names if before.get(key) != given.get(key)]
    return ", ".join(f"{key}: {before.get(key)!r} -> {given.get(key)!r}" for key in changed)


def _is_free(name: str) -> bool:
    return name in FREE_FIELDS or (name.startswith(FREE_PREFIXES) and name not in BINDING_FIELDS)
