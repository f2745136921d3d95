"""Where the shards of a build are made: in processes of this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:  # options name an executor, and the command line knows them before datasets is loaded
    from hfcomp.generation.manifest import Record
    from hfcomp.generation.shards import Job

ExecutorName = Literal["local", "ray"]


@dataclass(frozen=True)
class Workers:
    """What makes the shards of a build; nothing of it changes the result.

    Attributes:
        executor: `local`, processes of this machine, or `ray`, actors of a Ray cluster.
        number: of them.
        gpus: of each, on Ray; by default one where the cluster has any.
    """

    executor: ExecutorName = "local"
    number: int = 1
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.executor not in get_args(ExecutorName):
            raise ValueError(f"executor is {self.executor!r}; expected {' or '.join(get_args(ExecutorName))}.")
        if self.number < 1:
            raise ValueError(f"num_workers is {self.number}; expected 1 or more.")
        if self.gpus is not None and self.executor != "ray":
            raise ValueError("gpus_per_worker needs executor ray; local workers take this machine's GPUs in turn.")
        if self.gpus is not None and self.gpus < 0:
            raise ValueError(f"gpus_per_worker is {self.gpus:g}; expected 0 or more.")


def make_shards(job: Job, missing: Sequence[int], workers: Workers) -> Iterator[tuple[int, Record]]:
    """Makes shards in any order.

    Args:
        job: the build, whose folder is locked by this process.
        missing: numbers of the shards to make.
        workers: that make them.

    Yields:
        The number and the record of each shard, without `set_aside_rows`, when both are on disk.

    Raises:
        StageError: when a stage fails or a worker is lost for good; shards that were under way are finished first.
    """
    if workers.executor == "ray" and missing:
        from hfcomp.generation.executors.ray import make_on_ray

        return make_on_ray(job, missing, workers.number, workers.gpus)
    from hfcomp.generation.executors.local import make_locally

    return make_locally(job, missing, workers.number)
