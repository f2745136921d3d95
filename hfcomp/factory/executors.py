"""Executors: make the shards of a build in this process, in spawned processes, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from multiprocessing.sharedctypes import Synchronized

from hfcomp.factory.manifest import Record
from hfcomp.factory.options import Workers
from hfcomp.factory.shards import Job, ShardMaker, Stage, StageError
from hfcomp.workers import end_with, set_worker_number

START_METHOD = "spawn"  # torch and CUDA do not survive a fork


def make_shards(job: Job, missing: Sequence[int], workers: Workers) -> Iterator[tuple[int, Record]]:
    """Makes shards in any order.

    Yields:
        The number and the record of each shard, without `set_aside_rows`, once both are on disk.

    Raises:
        StageError: If a stage fails or a worker is lost for good. Shards in progress are finished first.
    """
    if workers.executor == "ray" and missing:
        from hfcomp.factory.ray_executor import make_on_ray

        return make_on_ray(job, missing, workers.number, workers.gpus)
    return _make_locally(job, missing, workers.number)


def _make_locally(job: Job, missing: Sequence[int], num_workers: int) -> Iterator[tuple[int, Record]]:
    if num_workers == 1 or len(missing) <= 1:
        maker = ShardMaker(job)
        yield from ((index, maker.make(index)) for index in missing)
    else:
        yield from _make_in_workers(job, missing, min(num_workers, len(missing)))


def _make_in_workers(job: Job, missing: Sequence[int], num_workers: int) -> Iterator[tuple[int, Record]]:
    _check_picklable(job.stages)
    context = multiprocessing.get_context(START_METHOD)
    # Workers watch one end of this pipe. It closes when this process ends for any reason. The workers then end too, so
    # none keeps writing to a folder whose lock is free.
    stop, alive = context.Pipe(duplex=False)
    # Workers number themselves with this counter and use the numbers to take GPUs in turn.
    started = context.Value("i", 0)
    pool = ProcessPoolExecutor(num_workers, context, initializer=_start_worker, initargs=(job, stop, started))
    try:
        with _share_threads(num_workers):
            futures = {pool.submit(_make_in_worker, index): index for index in missing}
            for future in as_completed(futures):
                yield futures[future], future.result()
    except BrokenProcessPool:
        raise StageError(
            "a worker process ended unexpectedly, for example out of memory. Finished shards are kept: run it "
            "again with fewer workers or smaller shards to resume."
        ) from None
    except Exception:  # raised again once the shards in progress are finished and recorded
        pool.shutdown(cancel_futures=True)
        raise
    except BaseException:
        alive.close()  # an interrupt does not wait for them
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        alive.close()


_maker: ShardMaker | None = None


def _start_worker(job: Job, stop: Connection, started: Synchronized[int]) -> None:
    global _maker
    with started.get_lock():
        set_worker_number(started.value)
        started.value += 1
    _maker = ShardMaker(job)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process is interrupted too and ends this worker
    threading.Thread(target=end_with, args=(stop,), daemon=True).start()


def _make_in_worker(index: int) -> Record:
    if _maker is None:
        raise RuntimeError("this worker was not started by run_stages.")
    return _maker.make(index)


def _check_picklable(stages: Sequence[Stage]) -> None:
    for stage in stages:
        try:
            ForkingPickler.dumps(stage)
        except Exception as error:  # the exception depends on the pickled object
            raise ValueError(
                f"stage {stage.name!r} cannot be sent to other processes: {error}. `make` must be a top-level "
                "function of a module, and its settings plain values. Or set num_workers=1."
            ) from error


@contextmanager
def _share_threads(num_workers: int) -> Iterator[None]:
    """Divides the cores among workers, which would block each other if each used all cores."""
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // num_workers))
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]
