"""The executor `ray`: actors of a Ray cluster make the shards, with Ray Data.

All machines need the same packages. They also need the build's folder, the source's files and the stages' models under
the same paths, for example on a network file system. Actors write the shards to the folder; this process, which holds
the folder's lock, writes the records and the manifest. If an actor does not see these files, the build ends with an
error that says so. Environment variables of this process are not sent to actors: set those that stages read where Ray
was started.

Ray retries the shard of a lost actor without limit. Here each try leaves a mark in the folder, and the third loss ends
the build.
"""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Image

from hfcomp.data.built_sets.files import PLAN, UNFINISHED
from hfcomp.errors import MISTAKES
from hfcomp.factory.manifest import Record
from hfcomp.factory.shards import Job, ShardMaker, StageError, note_shard
from hfcomp.writing import host, write_bytes

MAX_TRIES = 3
_STOP = "stop"
_TRIES = ".tries"
_logger = logging.getLogger(__name__)


def make_on_ray(
    job: Job, missing: Sequence[int], num_workers: int, gpus_per_worker: float | None
) -> Iterator[tuple[int, Record]]:
    """Makes shards on Ray, see `hfcomp.factory.executors.make_shards`.

    Uses the cluster that this process is connected to. Otherwise Ray looks for a cluster in the environment variable
    RAY_ADDRESS and on this machine. If there is none, a new cluster on this machine runs until the build ends.
    """
    # The path is absolute because an actor may start in another working folder.
    job = replace(job, folder=job.folder.resolve())
    _forget_tries(job.folder)
    with _connect() as ray:
        failed = None
        try:
            rows = _shard_rows(ray, job, missing, num_workers, gpus_per_worker)
            for block in rows.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                for row in block.to_pylist():
                    if row["error"]:
                        failed = failed or row
                        (job.folder / UNFINISHED / _STOP).touch()  # actors finish their current shard
                    elif row["record"]:
                        # This process writes the records because it holds the lock. An actor that Ray considers lost
                        # but that still runs can only write its shard again, with the same bytes.
                        yield row["index"], note_shard(job, row["index"], json.loads(row["record"]))
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise StageError(f"Ray failed: {reason}. Finished shards are kept: run it again to resume.") from error
    if failed:
        raise StageError(failed["error"]) from (RuntimeError(failed["trace"]) if failed["trace"] else None)


class ShardActor:
    """An actor that makes shards: Ray Data calls it with one index at a time.

    Args:
        reference: Reference to the job in Ray's object store.
        plan: Bytes of the build's plan, which is on the shared disk.
        files: One image file per column of the source, which must be on the shared disk too.
        working_folder: Working folder of the building process, to which paths in settings are relative.
    """

    def __init__(self, reference: Any, plan: bytes, files: Sequence[str], working_folder: str) -> None:
        self._reference, self._plan, self._files = reference, plan, files
        self._maker: ShardMaker | None = None
        # If this machine lacks the folder, only relative paths in settings fail, each with an error of its own.
        with suppress(OSError):
            os.chdir(working_folder)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Returns a row with the shard's record or the error, or with neither once the build is stopping."""
        index = int(batch["index"][0])
        record, error, trace = "", "", ""
        try:
            maker = self._open_maker()
            if not (maker.job.folder / UNFINISHED / _STOP).exists():
                _count_try(maker.job, index)
                record = json.dumps(maker.write(index))
        except StageError as raised:  # returned: an exception would end the other actors in mid-shard
            error, trace = str(raised), _trace(raised.__cause__, OSError)
        except Exception as raised:
            trace = _trace(raised, MISTAKES)
            error = f"{type(raised).__name__}: {raised}" if trace else str(raised)
        return {"index": [index], "record": [record], "error": [error], "trace": [trace]}

    def _open_maker(self) -> ShardMaker:
        if self._maker is None:
            import ray

            try:
                job = ray.get(self._reference)
            except FileNotFoundError as error:
                raise StageError(f"{_unseen_message(str(error.filename or error))}") from error
            for path in (job.folder / UNFINISHED / PLAN, *map(Path, self._files)):
                if not path.is_file():
                    raise StageError(_unseen_message(str(path)))
            if (job.folder / UNFINISHED / PLAN).read_bytes() != self._plan:
                raise StageError(_unseen_message(str(job.folder)))
            self._maker = ShardMaker(job)
        return self._maker


def _trace(error: BaseException | None, expected: type | tuple[type, ...]) -> str:
    """The traceback of an error; empty if the error's text is enough."""
    return "" if error is None or isinstance(error, expected) else "".join(traceback.format_exception(error))


def _unseen_message(path: str) -> str:
    return (
        f"a worker on {host()} does not see {path} of this build. All machines of the cluster need the build's folder "
        "and the source's files (HF_HOME) on a shared disk, under the same paths. Or use executor local."
    )


def _count_try(job: Job, index: int) -> None:
    """Marks that a shard has begun. Only the marks of lost actors are ever read."""
    path = job.folder / UNFINISHED / f"{index:05d}{_TRIES}"
    tries = path.stat().st_size if path.is_file() else 0
    if tries >= MAX_TRIES:
        raise StageError(
            f"shard {index} of {job.shards}: {MAX_TRIES} workers in turn ended unexpectedly, for example out of "
            "memory. Finished shards are kept: run it again with smaller shards or fewer workers to resume."
        )
    # The file's size is the count. The file is replaced atomically, so an actor that is lost at this line adds no try.
    write_bytes(path, b"." * (tries + 1))


def _forget_tries(folder: Path) -> None:
    for path in (*(folder / UNFINISHED).glob(f"*{_TRIES}"), folder / UNFINISHED / _STOP):
        path.unlink(missing_ok=True)


def _shard_rows(ray: Any, job: Job, missing: Sequence[int], num_workers: int, gpus_per_worker: float | None) -> Any:
    """The lazy Ray dataset, with a row of `index`, `record`, `error` and `trace` per shard."""
    gpus = ray.cluster_resources().get("GPU", 0)
    wanted = min(1, gpus) if gpus_per_worker is None else gpus_per_worker
    if wanted > gpus:
        _logger.warning("a worker needs %g GPUs, the Ray cluster has %g: waiting for machines to join.", wanted, gpus)
    plan = (job.folder / UNFINISHED / PLAN).read_bytes()
    try:
        arguments = (ray.put(job), plan, _first_files(job), os.getcwd())
    except Exception as error:  # the exception depends on the pickled object
        raise ValueError(
            f"the build cannot be sent to Ray: {error}. A stage's `make` must be a top-level function of a module and "
            "its settings plain values. Or use executor local."
        ) from error
    # A copy, so the caller's own Ray Data settings stay unchanged.
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.execution_no_progress_timeout_s = -1  # a shard may take hours
    # One task per actor: a second one would wait there for hours while other actors are idle.
    pool = ray.data.ActorPoolStrategy(size=min(num_workers, len(missing)), max_tasks_in_flight_per_actor=1)
    with ray.data.DataContext.current(context):  # a dataset keeps the context that it was made with
        indices = ray.data.from_items([{"index": index} for index in missing], override_num_blocks=len(missing))
    return indices.map_batches(
        ShardActor, batch_size=1, compute=pool, fn_constructor_args=arguments, num_gpus=wanted or None
    )


def _first_files(job: Job) -> list[str]:
    """The image files of the first row in columns that are read or written, if they are on this machine."""
    names = {name for name, feature in job.dataset.features.items() if isinstance(feature, Image)}
    images = [job.dataset[0][name] for name in names & {*job.reads, *job.features}]
    paths = [image["path"] for image in images if image and image["bytes"] is None and image["path"]]
    return [path for path in paths if os.path.isfile(path)]


@contextmanager
def _connect() -> Iterator[Any]:
    """Connects Ray to a cluster, with only errors logged."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ImportError("executor ray needs Ray: pip install 'hfcomp[ray]'.") from error
    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield ray
    finally:
        logger.setLevel(level)
        if started:
            ray.shutdown()
