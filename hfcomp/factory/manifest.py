"""Manifest of a build, and the on-disk records from which it resumes.

| in the folder | what | when |
|---|---|---|
| `data/train-00000-of-00003.parquet` | a finished shard | as soon as it is made |
| `.build/plan.json`, `.build/00000.json` | the plan, and a record of each finished shard | until the end |
| `set_aside.jsonl`, `manifest.json` | the rows set aside; plan, records and totals | at the end |
| `.lock` | empty; held while a process builds | always |

These files contain no times, no paths outside the folder and no numbers of processes: the same plan gives the same
bytes.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

from hfcomp.checksums import file_hash, read_checked
from hfcomp.data.built_sets.files import (
    DATA,
    MANIFEST,
    PLAN,
    SET_ASIDE_FILE,
    TRAIN,
    UNFINISHED,
    lost_manifest,
    rebuild_advice,
)
from hfcomp.old_names import current_name, current_spelling
from hfcomp.writing import LOCK_FILE, remove_unfinished, replacing, write_json

SCHEMA_VERSION = 2
SET_ASIDE_ROWS = "set_aside_rows"

Plan = dict[str, Any]
Record = dict[str, Any]


def shard_file(index: int, shards: int, split: str = TRAIN) -> str:
    """The name of a shard's file inside the folder, as the Hub counts them."""
    return f"{DATA}/{split}-{index:05d}-of-{shards:05d}.parquet"


def open_build(folder: Path, plan: Plan, shards: int) -> dict[int, Record]:
    """Returns the records, by number, of intact shards from an earlier process of the same build.

    Their rows set aside stay on disk. Half-written files are removed. The caller holds the folder's lock.
    """
    try:
        manifest = _read_json(folder / MANIFEST)
    except ValueError:
        if not (folder / SET_ASIDE_FILE).is_file():
            _check_free(folder)  # the manifest belongs to something else
        raise
    if manifest is not None and (not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA_VERSION):
        raise ValueError(f"{folder / MANIFEST} was not written by this version of hfcomp. Choose another folder.")
    # A finished build has its plan in the manifest, an unfinished one next to its records.
    before = manifest["plan"] if manifest else _read_json(folder / UNFINISHED / PLAN)
    if before is None:
        _check_free(folder)
    elif before != plan and (manifest or _has_records(folder)):  # otherwise nothing is lost
        check_plan(folder, before, plan)
    # Partial files have temporary names. The caller holds the lock, so no living process owns any.
    for place in (folder, folder / DATA, folder / UNFINISHED):
        remove_unfinished(place)
    write_json(folder / UNFINISHED / PLAN, plan, sort_keys=True)  # first, because it identifies the folder's owner
    (folder / DATA).mkdir(exist_ok=True)
    if manifest:
        _restore_records(folder, manifest)
    # A record is written after its shard. If the hash differs, the shard was changed later or the disk lost a write,
    # so the shard is built again.
    whole = {}
    for index in range(shards):
        record = _read_record(record_file(folder, index))
        if record and _is_whole(folder, record):
            whole[index] = without_rows(record)
    if len(whole) < shards:
        (folder / MANIFEST).unlink(missing_ok=True)  # it marks the build as complete
    return whole


def begun_plan(folder: Path) -> Plan | None:
    """The plan of a build that is finished or has a finished shard; None for any other folder."""
    manifest = _read_json(folder / MANIFEST)
    if manifest:
        return manifest["plan"]
    return _read_json(folder / UNFINISHED / PLAN) if _has_records(folder) else None


def _has_records(folder: Path) -> bool:
    return any((folder / UNFINISHED).glob("[0-9]*.json"))


def record_file(folder: Path, index: int) -> Path:
    """Path of a shard's record while the build is unfinished."""
    return folder / UNFINISHED / f"{index:05d}.json"


def write_record(folder: Path, index: int, record: Record) -> None:
    """Records that a shard is finished. Its file must already be in place."""
    write_json(record_file(folder, index), record, sort_keys=True)


def without_rows(record: Record) -> Record:
    """A record without its rows set aside, which may not fit into memory for a large dataset."""
    return {key: value for key, value in record.items() if key != SET_ASIDE_ROWS}


def close_build(folder: Path, plan: Plan, records: Sequence[Record]) -> Record:
    """Writes the rows set aside and the manifest, removes the shards' records, and returns the manifest."""
    remove_unfinished(folder / DATA)  # left by lost workers
    with replacing(folder / SET_ASIDE_FILE) as part, part.open("wb") as file:
        for index in range(len(records)):
            for line in _read_json(record_file(folder, index))[SET_ASIDE_ROWS]:
                file.write(f"{json.dumps(line, ensure_ascii=False, sort_keys=True)}\n".encode())
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "plan": plan,
        "set_aside_sha256": file_hash(folder / SET_ASIDE_FILE),
        **sums(records),
        "shards": list(records),
    }
    # The manifest is written before the records are removed. If the process is killed in between, both exist, and the
    # next start closes the build again with the same bytes.
    write_json(folder / MANIFEST, manifest, sort_keys=True)
    shutil.rmtree(folder / UNFINISHED)
    return manifest


def sums(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Total `rows`, `counts` and `set_aside` of several shards or builds."""
    counts, aside = (_totals(record[name] for record in records) for name in ("counts", "set_aside"))
    return {"rows": sum(record["rows"] for record in records), "counts": counts, "set_aside": aside}


def _totals(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Sums by name, sorted by name."""
    total: Counter[str] = Counter()
    for numbers in counts:
        total.update(numbers)
    return dict(sorted(total.items()))


def check_plan(folder: Path, before: Plan, plan: Plan) -> None:
    """Raises if a build was made with another plan; old spellings in the names of stages make no difference."""
    if old := [name for name in before.get("columns", ()) if current_name(name) != name]:
        raise ValueError(
            f"{folder} was built when the column {current_name(old[0])} was still called {old[0]}. It can be loaded "
            "and pushed as it is. Choose another output folder to build it again."
        )
    respelled, now = (json.loads(current_spelling(json.dumps(version))) for version in (before, plan))
    if respelled != now:
        raise ValueError(
            f"{folder} holds a build with other settings: {'; '.join(differences(before, plan))}. Choose another "
            "output folder, or delete this one."
        )


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """The differences between two plans, such as `stages.negatives.seed: 0 -> 1`."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            line
            for key in sorted({*before, *now})
            for line in differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if before == now else [f"{name}: {_short(before)} -> {_short(now)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_free(folder: Path) -> None:
    if (folder / SET_ASIDE_FILE).is_file():
        raise ValueError(lost_manifest(folder))
    if _has_records(folder):
        raise ValueError(
            f"{folder / UNFINISHED / PLAN} is missing, so the records next to it cannot be identified. "
            f"{rebuild_advice(folder)}"
        )
    there = sorted(path.name for path in folder.iterdir() if path.name != LOCK_FILE)
    ours = [path.name for path in (folder / UNFINISHED).iterdir()] if there == [UNFINISHED] else there
    # A killed process may have left the plan half-written.
    reject_other_files(folder, [name for name in ours if not name.startswith(PLAN)])


def reject_other_files(folder: Path, names: Sequence[str]) -> None:
    """Raises ValueError if an output folder contains files that do not belong to the build."""
    if names:
        raise ValueError(
            f"{folder} contains other files ({', '.join(names[:3])}). Choose another output folder, or empty this one."
        )


def _restore_records(folder: Path, manifest: Record) -> None:
    """Restores the records of a finished build, except for shards whose rows set aside are missing."""
    # A finished build that lost a shard becomes an unfinished one: its records are restored, and only the missing part
    # is built. Rows set aside are in the order of shards, so each shard takes as many lines as it counted.
    path = folder / SET_ASIDE_FILE
    whole = path.is_file() and file_hash(path) == manifest["set_aside_sha256"]
    with path.open(encoding="utf-8", newline="\n") if whole else nullcontext(()) as file:
        lines = iter(file)
        for index, record in enumerate(manifest["shards"]):
            number = sum(record["set_aside"].values())
            own = [json.loads(line) for line in islice(lines, number)]
            if len(own) == number and not _read_record(record_file(folder, index)):
                write_record(folder, index, record | {SET_ASIDE_ROWS: own})


def _is_whole(folder: Path, record: Record) -> bool:
    path = folder / record["file"]
    return path.is_file() and file_hash(path) == record["sha256"]


def _read_json(path: Path) -> Any:
    """The content of a JSON file, or None if missing."""
    return read_checked(path, rebuild_advice(path.parent)) if path.is_file() else None


def _read_record(path: Path) -> Record | None:
    """A shard's record; None if damaged, which means that the shard is built again."""
    try:
        return _read_json(path)
    except ValueError:
        return None
