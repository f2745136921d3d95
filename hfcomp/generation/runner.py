"""Runs stages over a data set, shard by shard, so that an interrupted build resumes and gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, Image
from tqdm.auto import tqdm

from hfcomp import __version__
from hfcomp.generation.manifest import Plan, Record, close_build, open_build
from hfcomp.generation.shards import COUNTS, RESERVED, ROW, SET_ASIDE, Batch, Job, ShardMaker, Stage, StageError
from hfcomp.writing import locked

__all__ = ["COUNTS", "ROW", "SET_ASIDE", "Batch", "Build", "Stage", "StageError", "run_stages"]

ROWS_PER_SHARD = 1000
START_METHOD = "spawn"  # torch and CUDA do not survive a fork
_FINGERPRINT_ROWS = 1000


@dataclass(frozen=True)
class Build:
    """The outcome of a build.

    Attributes:
        folder: of the data set.
        manifest: as `manifest.json` holds it: `plan`, `rows`, `counts`, `set_aside`, `shards`.
        kept: shards that were there already.
        made: shards that were made now.
    """

    folder: Path
    manifest: dict[str, Any]
    kept: int
    made: int


def run_stages(
    dataset: Dataset,
    stages: Sequence[Stage],
    folder: Path | str,
    *,
    features: Features,
    reads: Sequence[str] = ("caption",),
    rows_per_shard: int = ROWS_PER_SHARD,
    num_workers: int = 1,
    progress: bool = False,
) -> Build:
    """Runs stages over all rows of a data set and writes Parquet files that `datasets.load_dataset` reads.

    A shard is `rows_per_shard` rows of the source. Its file is put in its place whole, then recorded. After a kill at
    any moment, the same call keeps the finished shards that match their record, removes partial files and
    makes the rest: the folder ends up with the same bytes as without the kill. What is in the folder is described in
    `hfcomp.generation.manifest`.

    Images are neither decoded nor encoded: their bytes are copied as they are. Where a row holds only a path, the
    file's bytes are read in, so that the set is complete; a row whose file is missing or no image is set aside,
    as is one whose file is a URL, unless `hfcomp.data.urls.set_url_access` allowed them.

    Args:
        dataset: the source.
        stages: in their order.
        folder: a new one, an empty one, or one of the same build.
        features: of the columns that are written, in order: those that stages return, others from the source.
        reads: the source's columns that stages see. A changed source is found by their content and that of the columns
            that are written, see `fingerprint`.
        rows_per_shard: of the source; shards of fewer rows are safer, of more faster.
        num_workers: processes; they are spawned, so a script has to have its `if __name__ == "__main__":`. They change
            nothing in the result.
        progress: whether to show a bar.

    Raises:
        ValueError: for settings that do not fit, a source without rows, a folder that holds something else or a build
            of other settings, naming the difference, or that another process is building in.
        StageError: when a stage fails; what is done is kept.
    """
    # Workers import this module; torch, which comes with that one, would cost each of them seconds.
    from hfcomp.data.loading import undecoded
    from hfcomp.data.urls import current_access

    _check(dataset, stages, features, reads, rows_per_shard, num_workers)
    folder = Path(folder)
    dataset = undecoded(dataset)
    job = Job(dataset, tuple(stages), tuple(reads), features, folder, rows_per_shard, current_access())
    with locked(folder):
        plan = _plan(job)
        records = open_build(folder, plan, job.shards)
        kept = len(records)
        missing = [index for index in range(job.shards) if index not in records]
        rows = sum(records[index]["rows"] for index in records)
        with tqdm(total=job.shards, initial=kept, unit="shard", desc="building", disable=not progress) as bar:
            for index, record in _make_shards(job, missing, num_workers):
                records[index] = record
                rows += record["rows"]
                bar.set_postfix_str(f"{rows:,} rows", refresh=False)
                bar.update()
        manifest = close_build(folder, plan, [records[index] for index in range(job.shards)])
    return Build(folder, manifest, kept, len(missing))


def fingerprint(dataset: Dataset, columns: Sequence[str]) -> str:
    """Identifies a source: its features and the content of all columns that stages read or that are written.

    Of an image the bytes count where the set holds them; of one that is a file its name and size, as reading all files
    at each start would take as long as building.

    Args:
        dataset: its images undecoded.
        columns: whose content counts; names that the source lacks are made by stages.
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
    # The folder of a file may be another after a move.
    return [facts, [path and path.replace("\\", "/").rpartition("/")[2] for path in paths]]


def _file_size(path: str | None) -> int | None:
    """None if there is no local file, as for a URL."""
    try:
        return None if path is None else os.path.getsize(path)
    except (OSError, ValueError):  # a name with a zero byte is a ValueError
        return None


def _check(
    dataset: Dataset,
    stages: Sequence[Stage],
    features: Features,
    reads: Sequence[str],
    rows_per_shard: int,
    num_workers: int,
) -> None:
    if not isinstance(dataset, Dataset):
        raise TypeError(f"expected a datasets.Dataset, found {type(dataset).__name__}; a streaming set has no shards.")
    if not len(dataset):
        raise ValueError("the source has no rows. Check its split and filters.")
    for name, value in (("rows_per_shard", rows_per_shard), ("num_workers", num_workers)):
        if value < 1:
            raise ValueError(f"{name} is {value}; expected 1 or more.")
    if not stages:
        raise ValueError("no stages are given; expected at least one.")
    taken = [name for name in (*dataset.column_names, *features) if name in RESERVED]
    if taken:
        raise ValueError(f"the column {taken[0]!r} is reserved for builds. Rename or drop it.")
    missing = [name for name in reads if name not in dataset.column_names]
    if missing:
        raise ValueError(f"the source has no column {missing[0]!r}; it has: {', '.join(dataset.column_names)}.")


def _plan(job: Job) -> Plan:
    plan = {
        "hfcomp_version": __version__,
        "source": {"fingerprint": fingerprint(job.dataset, (*job.reads, *job.features)), "rows": len(job.dataset)},
        "stages": {f"{number} {stage.name}": stage.facts() for number, stage in enumerate(job.stages)},
        "rows_per_shard": job.rows_per_shard,
        "columns": job.features.to_dict(),
    }
    return json.loads(json.dumps(plan))  # as it reads back


def _make_shards(job: Job, missing: Sequence[int], num_workers: int) -> Iterator[tuple[int, Record]]:
    if num_workers == 1 or len(missing) <= 1:
        maker = ShardMaker(job)
        yield from ((index, maker.make(index)) for index in missing)
    else:
        yield from _make_in_workers(job, missing, min(num_workers, len(missing)))


def _make_in_workers(job: Job, missing: Sequence[int], num_workers: int) -> Iterator[tuple[int, Record]]:
    _check_picklable(job.stages)
    context = multiprocessing.get_context(START_METHOD)
    stop, alive = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(num_workers, context, initializer=_start_worker, initargs=(job, stop))
    try:
        with _share_threads(num_workers):
            futures = {pool.submit(_make_in_worker, index): index for index in missing}
            for future in as_completed(futures):
                yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise StageError(
            "a worker process ended unexpectedly, for example out of memory. Finished shards are kept: repeat the "
            "call with fewer workers or smaller shards to resume."
        ) from error
    except Exception:
        pool.shutdown(cancel_futures=True)  # shards under way are finished and recorded
        raise
    except BaseException:
        alive.close()  # an interrupt does not wait for them
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        alive.close()


_maker: ShardMaker | None = None


def _start_worker(job: Job, stop: Connection) -> None:
    global _maker
    _maker = ShardMaker(job)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it is interrupted too, and ends it
    threading.Thread(target=_end_with, args=(stop,), daemon=True).start()


def _end_with(stop: Connection) -> None:
    """Ends this process as soon as the one that started it closes its side or is gone, killed ones included."""
    multiprocessing.connection.wait([stop])
    os._exit(1)


def _make_in_worker(index: int) -> Record:
    if _maker is None:
        raise RuntimeError("the worker was not started by run_stages.")
    return _maker.make(index)


def _check_picklable(stages: Sequence[Stage]) -> None:
    for stage in stages:
        try:
            ForkingPickler.dumps(stage)
        except Exception as error:  # what pickling raises depends on the object
            raise ValueError(
                f"stage {stage.name!r} cannot be sent to other processes: {error}. `make` must be a top-level "
                "function of a module and its settings plain values; or set num_workers=1."
            ) from error


@contextmanager
def _share_threads(num_workers: int) -> Iterator[None]:
    """Workers that each used all cores would wait for one another."""
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // num_workers))
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]
