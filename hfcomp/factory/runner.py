"""Runs stages over a dataset, shard by shard. An interrupted build resumes and gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, Image
from tqdm.auto import tqdm

from hfcomp import __version__
from hfcomp.data.built_sets.files import ROWS_PER_SHARD, TRAIN
from hfcomp.factory.executors import make_shards
from hfcomp.factory.manifest import Plan, close_build, open_build, sums
from hfcomp.factory.options import ExecutorName, Workers
from hfcomp.factory.shards import COUNTS, KEPT, RESERVED, ROW, SET_ASIDE, THIS_RUN, Batch, Job, Stage, StageError
from hfcomp.writing import locked

__all__ = ["COUNTS", "ROW", "SET_ASIDE", "Batch", "Build", "Stage", "StageError", "run_stages"]

_FINGERPRINT_ROWS = 1000


@dataclass(frozen=True)
class Build:
    """The outcome of a build.

    Attributes:
        manifest: Content of `manifest.json`: `plan`, `rows`, `counts`, `set_aside`, `shards`.
        kept: Number of shards that an earlier run had finished.
        made: Number of shards that this run made.
        counts: Counts of this run, which are not in the manifest.
    """

    folder: Path
    manifest: dict[str, Any]
    kept: int
    made: int
    counts: Counter[str] = field(default_factory=Counter)


def run_stages(
    dataset: Dataset,
    stages: Sequence[Stage],
    folder: Path | str,
    *,
    features: Features,
    reads: Sequence[str] = ("caption",),
    rows_per_shard: int = ROWS_PER_SHARD,
    executor: ExecutorName = "local",
    num_workers: int = 1,
    gpus_per_worker: float | None = None,
    progress: bool = False,
    split: str = TRAIN,
    skip_damaged: bool | None = None,
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Build:
    """Runs stages over all rows of a dataset and writes Parquet files that `datasets.load_dataset` reads.

    A shard is `rows_per_shard` rows of the source. Its file is written atomically, then recorded. After a kill at any
    moment, the same call keeps the finished shards that match their record, removes partial files and makes the rest.
    The folder ends up with the same bytes as without the kill. `hfcomp.factory.manifest` describes the folder's
    content.

    Images are not encoded again: their bytes are copied. If a row holds only a path, the file's bytes are embedded, so
    the dataset is complete. A row is set aside if its file is missing or not an image, or if its file is a URL that
    `hfcomp.data.urls.set_url_access` does not allow.

    Args:
        folder: A new or empty folder, or the folder of the same build.
        features: Columns to write, in order. Stages return them, or they come from the source.
        reads: Columns of the source that stages see. Their content and that of the written columns reveals a changed
            source, see `fingerprint`.
        rows_per_shard: Rows of the source per shard. Smaller shards are safer, larger ones faster.
        executor: `local`, or `ray` for actors of a Ray cluster, see `hfcomp.factory.ray_executor`. Neither the
            executor nor the number of workers changes the result.
        num_workers: Number of processes or actors. Local processes are spawned, so a script needs
            `if __name__ == "__main__":`.
        gpus_per_worker: GPUs per actor on Ray; defaults to one if the cluster has any.
        skip_damaged: Whether rows with an image that cannot be decoded are set aside (True) or end the build (False).
            By default no image is decoded. Finished shards are the same in all cases.
        check: Function that is called with the total `rows`, `counts` and `set_aside` before the build is closed. If
            it raises, the build stays unfinished.

    Raises:
        ValueError: For invalid settings, a source without rows, a folder that another process is building in, or a
            folder with other content or with a build with other settings; the error names the difference.
        StageError: If a stage fails or the disk is full. Finished shards are kept.
    """
    # These imports are local because workers import this module, and torch, which comes with them, would cost every
    # worker seconds.
    from hfcomp.data.loading import undecoded
    from hfcomp.data.urls import current_access

    workers = Workers(executor, num_workers, gpus_per_worker)
    _check_inputs(dataset, stages, features, reads, rows_per_shard)
    folder = Path(folder)
    dataset = undecoded(dataset)
    how = (rows_per_shard, current_access(), split, skip_damaged)
    job = Job(dataset, tuple(stages), tuple(reads), features, folder, *how)
    # The lock is held to the end, because a second process would remove partial files of the first as leftovers.
    with locked(folder):
        plan = _plan(job)
        records = open_build(folder, plan, job.shards)
        kept = len(records)
        missing = [index for index in range(job.shards) if index not in records]
        rows, counts = sum(records[index]["rows"] for index in records), Counter[str]()
        with tqdm(total=job.shards, initial=kept, unit="shard", desc="building", disable=not progress) as bar:
            for index, record in make_shards(job, missing, workers):
                counts.update(record.pop(THIS_RUN, {}))
                records[index] = record
                rows += record["rows"]
                bar.set_postfix_str(f"{rows:,} rows", refresh=False)
                bar.update()
        # Workers finish in any order, but the manifest lists shards by number.
        done = [records[index] for index in range(job.shards)]
        # After a failed check all records stay on disk, so the same command with another limit rebuilds no shard.
        if check is not None:
            check(sums(done))
        try:
            manifest = close_build(folder, plan, done)
        except OSError as error:
            raise StageError(f"the build cannot be finished: {error}. {KEPT}") from error
    return Build(folder, manifest, kept, len(missing), counts)


def source_facts(dataset: Dataset, columns: Sequence[str]) -> dict[str, Any]:
    """The entry of a build's plan that identifies its source, see `fingerprint`."""
    from hfcomp.data.loading import undecoded

    return {"fingerprint": fingerprint(undecoded(dataset), columns), "rows": len(dataset)}


def fingerprint(dataset: Dataset, columns: Sequence[str]) -> str:
    """A hash of a source's features and of the content of all columns that stages read or that are written.

    An embedded image counts with its bytes. An image file counts with its name and size, because reading all files at
    each start would take as long as building.

    Args:
        dataset: The source, with undecoded images.
        columns: Columns whose content counts. Columns that the source lacks are made by stages.
    """
    digest = hashlib.sha256(json.dumps(dataset.features.to_dict(), sort_keys=True).encode())
    images = {name for name, feature in dataset.features.items() if isinstance(feature, Image)}
    known = [name for name in dataset.column_names if name in columns]
    for table in dataset.select_columns(known).with_format("arrow").iter(_FINGERPRINT_ROWS):
        for name in known:
            values = _image_facts(table.column(name)) if name in images else table.column(name).to_pylist()
            digest.update(json.dumps([name, values], default=repr).encode())
    return f"sha256:{digest.hexdigest()}"


def _image_facts(images: pa.ChunkedArray) -> list[Any]:
    contents, paths = pc.struct_field(images, "bytes"), pc.struct_field(images, "path").to_pylist()
    buffers = [content.as_buffer() for content in contents]  # None without bytes
    facts = [
        _file_size(path) if buffer is None else hashlib.sha256(buffer).hexdigest()
        for buffer, path in zip(buffers, paths, strict=True)
    ]
    # Only the file's name counts, because a move changes its folder.
    return [facts, [path and path.replace("\\", "/").rpartition("/")[2] for path in paths]]


def _file_size(path: str | None) -> int | None:
    """The size in bytes; None without a local file, for example for a URL."""
    try:
        return None if path is None else os.path.getsize(path)
    except (OSError, ValueError):  # a name with a zero byte is a ValueError
        return None


def _check_inputs(
    dataset: Dataset, stages: Sequence[Stage], features: Features, reads: Sequence[str], rows_per_shard: int
) -> None:
    if not isinstance(dataset, Dataset):
        raise TypeError(f"expected a datasets.Dataset, found {type(dataset).__name__}; a streaming set has no shards.")
    if not len(dataset):
        raise ValueError("the source has no rows. Check its split and filters.")
    if rows_per_shard < 1:
        raise ValueError(f"rows_per_shard: found {rows_per_shard}, expected 1 or more.")
    if not stages:
        raise ValueError("no stages were given; expected at least one.")
    reserved = [name for name in (*dataset.column_names, *features) if name in RESERVED]
    if reserved:
        raise ValueError(f"the column {reserved[0]!r} is reserved for builds. Rename or drop it.")
    missing = [name for name in reads if name not in dataset.column_names]
    if missing:
        raise ValueError(f"the source has no column {missing[0]!r}; it has: {', '.join(dataset.column_names)}.")


def _plan(job: Job) -> Plan:
    plan = {
        "hfcomp_version": __version__,
        "source": source_facts(job.dataset, (*job.reads, *job.features)),
        "stages": {f"{number} {stage.name}": stage.facts() for number, stage in enumerate(job.stages)},
        "rows_per_shard": job.rows_per_shard,
        "columns": job.features.to_dict(),
    }
    if job.split != TRAIN:  # plans of training sets omit the split, so builds of an earlier hfcomp still resume
        plan["split"] = job.split
    return json.loads(json.dumps(plan))  # as it is read back
