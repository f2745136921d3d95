"""A build's manifest, and its records on disk for resuming.

| in the folder | what | when |
|---|---|---|
| `data/train-00000-of-00003.parquet` | a finished shard | as soon as it is made |
| `.build/plan.json`, `.build/00000.json` | the plan, and a record of each finished shard | until the end |
| `set_aside.jsonl`, `manifest.json` | the rows set aside; plan, records and totals | at the end |
| `.lock` | empty; held while a process builds | always |

Nothing here holds a time, a path outside the folder or a number of processes: the same plan gives the same bytes.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hfcomp.checksums import file_hash, read_checked
from hfcomp.data.built_sets import (
    BUILD_ANEW,
    DATA,
    MANIFEST,
    PLAN,
    SET_ASIDE_FILE,
    UNFINISHED,
    lost_manifest,
)
from hfcomp.writing import LOCK_FILE, remove_unfinished, write_json, write_text

SCHEMA_VERSION = 2

Plan = dict[str, Any]
Record = dict[str, Any]


def shard_file(index: int, shards: int) -> str:
    """The name of a shard's file inside the folder, as the Hub counts them."""
    return f"{DATA}/train-{index:05d}-of-{shards:05d}.parquet"


def open_build(folder: Path, plan: Plan, shards: int) -> dict[int, Record]:
    """The records, by number, of the shards that an earlier process of the same build finished and that are intact.

    What it left half-written is removed. The caller holds the folder's lock.

    Raises:
        ValueError: for a folder that holds a build of another plan or with a damaged or missing manifest or plan, or
            files of something else.
    """
    try:
        manifest = _read(folder / MANIFEST)
    except ValueError:
        if not (folder / SET_ASIDE_FILE).is_file():
            _check_free(folder)  # a manifest of something else
        raise
    if manifest is not None and (not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA_VERSION):
        raise ValueError(f"{folder / MANIFEST} was not written by this version of hfcomp. Choose another folder.")
    before = manifest["plan"] if manifest else _read(folder / UNFINISHED / PLAN)
    if before is None:
        _check_free(folder)
    elif before != plan and (manifest or any((folder / UNFINISHED).glob("[0-9]*.json"))):  # else nothing is lost
        raise ValueError(
            f"{folder} holds a build with other settings: {'; '.join(differences(before, plan))}. Choose another "
            "output folder, or delete this one."
        )
    for place in (folder, folder / DATA, folder / UNFINISHED):
        remove_unfinished(place)
    write_json(folder / UNFINISHED / PLAN, plan, sort_keys=True)  # first, as it identifies the folder's owner
    (folder / DATA).mkdir(exist_ok=True)
    records = _records_of_manifest(folder, manifest) if manifest else {}
    records |= {index: one for index in range(shards) if (one := _read_record(record_file(folder, index)))}
    whole = {index: one for index, one in sorted(records.items()) if _is_whole(folder, index, shards, one)}
    for index, record in whole.items():
        write_record(folder, index, record)
    if len(whole) < shards:
        (folder / MANIFEST).unlink(missing_ok=True)  # it marks the build as complete
    return whole


def record_file(folder: Path, index: int) -> Path:
    """Path of a shard's record while the build is unfinished."""
    return folder / UNFINISHED / f"{index:05d}.json"


def write_record(folder: Path, index: int, record: Record) -> None:
    """Notes that a shard is finished; its file is in its place by then."""
    write_json(record_file(folder, index), record, sort_keys=True)


def close_build(folder: Path, plan: Plan, records: Sequence[Record]) -> Record:
    """Writes the rows set aside and the manifest, which it returns, and removes the records of all shards."""
    lines = [line for record in records for line in record["set_aside_rows"]]
    text = "".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in lines)
    write_text(folder / SET_ASIDE_FILE, text)
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "plan": plan,
        "set_aside_sha256": file_hash(folder / SET_ASIDE_FILE),
        "rows": sum(record["rows"] for record in records),
        "counts": totals(record["counts"] for record in records),
        "set_aside": totals(record["set_aside"] for record in records),
        "shards": [{key: value for key, value in one.items() if key != "set_aside_rows"} for one in records],
    }
    write_json(folder / MANIFEST, manifest, sort_keys=True)
    shutil.rmtree(folder / UNFINISHED)
    return manifest


def totals(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Sums by name, in the order of names."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(sorted(total.items()))


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Where two plans differ, as `stages.negatives.seed: 0 -> 1`."""
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
    if (folder / UNFINISHED).is_dir() and any((folder / UNFINISHED).glob("[0-9]*.json")):
        raise ValueError(
            f"{folder / UNFINISHED / PLAN} is missing: the records next to it cannot be identified. {BUILD_ANEW}"
        )
    there = sorted(path.name for path in folder.iterdir() if path.name != LOCK_FILE)
    ours = [path.name for path in (folder / UNFINISHED).iterdir()] if there == [UNFINISHED] else there
    other = [name for name in ours if not name.startswith(PLAN)]  # a plan half-written is all that a kill leaves
    if other:
        raise ValueError(
            f"{folder} contains other files ({', '.join(other[:3])}). Choose another output folder, or empty this one."
        )


def _records_of_manifest(folder: Path, manifest: Record) -> dict[int, Record]:
    """A shard with missing entries of rows set aside loses its record: it is built again."""
    path = folder / SET_ASIDE_FILE
    whole = path.is_file() and file_hash(path) == manifest["set_aside_sha256"]
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line] if whole else []
    found = {}
    for index, record in enumerate(manifest["shards"]):
        start, end = record["source_rows"]
        own = [line for line in lines if start <= line["row"] < end]
        if len(own) == sum(record["set_aside"].values()):
            found[index] = record | {"set_aside_rows": own}
    return found


def _is_whole(folder: Path, index: int, shards: int, record: Record) -> bool:
    path = folder / shard_file(index, shards)
    return path.is_file() and file_hash(path) == record["sha256"]


def _read(path: Path) -> Any:
    """The content of a JSON file, or None if missing.

    Raises:
        ValueError: where it is damaged.
    """
    return read_checked(path, BUILD_ANEW) if path.is_file() else None


def _read_record(path: Path) -> Record | None:
    """A shard's record; None if damaged, so that the shard is built again."""
    try:
        return _read(path)
    except ValueError:
        return None
