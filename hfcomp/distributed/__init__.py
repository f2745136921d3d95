"""Collectives with the gradients that contrastive losses need. No other hfcomp package imports `torch.distributed`.

The rule for every hfcomp loss: each process computes the sum over its own anchors divided by the global count of
anchors, [`sum_loss`] adds these parts, and DDP averages the gradients of the parameters. The backward pass of
[`sum_loss`] multiplies by the number of processes, which undoes that average. So the gradients of the towers, of
`logit_scale` and of every learned parameter equal those of a single process that holds the whole batch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist


def world_size() -> int:
    """Returns the number of processes, or 1 if no process group is initialized."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Returns the index of this process, or 0 if no process group is initialized."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def check_world_size(num_processes: int) -> None:
    """Raises `ValueError` with the correct launch commands unless accelerate counts all processes."""
    # If accelerate counts fewer, each process reads every row, and its batches contain the pairs of other processes.
    if num_processes != world_size():
        raise ValueError(
            f"torch.distributed connects {world_size()} processes, but accelerate counts {num_processes}, so each "
            "would train on all rows. Do not create a process group yourself, and start the script with `torchrun "
            "--nproc_per_node 2` or `accelerate launch --num_processes 2`; on a CPU, or on an accelerator that "
            "processes cannot share (Apple's), also set use_cpu=True (--use_cpu true)."
        )


class _Gather(torch.autograd.Function):
    """One node for all tensors, so the collectives of the backward pass run in the same order on every process."""

    @staticmethod
    def forward(ctx: Any, sizes: list[int], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.sizes = sizes
        return tuple(_all_gather(tensor, sizes) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # A process's loss depends on all gathered rows, its own and the others'. The gradient of its rows is therefore
        # the sum of what every process computed for them: reduce first, then keep this process's rows.
        start, total = sum(ctx.sizes[: rank()]), sum(ctx.sizes)
        kept: list[torch.Tensor | None] = []
        for gradient, needed in zip(gradients, ctx.needs_input_grad[1:], strict=True):
            if not needed:
                kept.append(None)
                continue
            # Copied, because autograd may pass the same gradient to other nodes, and to several tensors of this one.
            gradient = gradient.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(gradient)
            per_row = gradient.shape[0] // total
            kept.append(gradient[start * per_row : (start + ctx.sizes[rank()]) * per_row])
        return None, *kept


def _all_gather(tensor: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    # `all_gather` requires equal shapes, but the last batch of an epoch is shorter on some processes: pad to the
    # longest, gather, and cut. Sizes are known in advance, from a small collective for all tensors of a step.
    per_row = tensor.shape[0] // sizes[rank()]
    sizes = [size * per_row for size in sizes]
    longest = max(sizes)
    padded = tensor.contiguous()
    if tensor.shape[0] < longest:
        padding = tensor.new_zeros((longest - tensor.shape[0], *tensor.shape[1:]))
        padded = torch.cat([padded, padding])
    parts = [torch.empty_like(padded) for _ in sizes]
    # Sent as bytes because not every backend has a collective for bool
    if padded.dtype == torch.bool:
        as_bytes = [part.to(torch.uint8) for part in parts]
        dist.all_gather(as_bytes, padded.to(torch.uint8))
        parts = [part.bool() for part in as_bytes]
    else:
        dist.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def gather_sizes(size: int, device: torch.device) -> list[int]:
    """Returns each process's first dimension in rank order, with a small collective and one wait for the host."""
    if world_size() == 1:
        return [size]
    # Sizes go to the host because `all_gather` needs its output shapes in advance.
    sizes = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(world_size())]
    dist.all_gather(sizes, torch.tensor([size], dtype=torch.long, device=device))
    return [int(part) for part in sizes]


def gather(*tensors: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, ...]:
    """Concatenates each tensor over all processes along dimension 0, without gradient (masks, kinds, ratings).

    `sizes` holds the number of rows `B` of each process, at least 1, in rank order. Tensors are `[B, ...]` on every
    process, or `[B * f, ...]` with `f` entries per row (concepts); their other dimensions are equal.
    """
    if world_size() == 1:
        return tensors
    with torch.no_grad():
        return tuple(_all_gather(tensor, sizes) for tensor in tensors)


def gather_with_grad(*tensors: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, ...]:
    """Concatenates like [`gather`], and returns the gradient of every process to the process that owns the rows.

    The backward pass sums the gradients of all processes and keeps this process's rows. Call it once for all tensors
    of a step.
    """
    if world_size() == 1:
        return tensors
    return _Gather.apply(sizes, *tensors)


class _SumLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor) -> torch.Tensor:
        total = loss.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        # DDP averages gradients: it divides their sum by the number of processes. Here each process holds the gradient
        # of its own part of the sum, so the sum itself is right, and the factor undoes the division.
        return gradient * world_size()


def sum_loss(loss: torch.Tensor) -> torch.Tensor:
    """Sums the parts of a loss over processes. The backward pass multiplies by their number, which DDP's mean undoes.

    A part is the sum over a process's own anchors divided by the global count of anchors.
    """
    return loss if world_size() == 1 else _SumLoss.apply(loss)


def sum_over_processes(values: torch.Tensor) -> torch.Tensor:
    """Sums a tensor over processes, without gradient. Meant for logging steps."""
    total = values.detach().clone()
    if world_size() > 1:
        dist.all_reduce(total)
    return total


class OtherProcessFailed(RuntimeError):
    """Raised if another process failed while this one was waiting for it; see [`fail_together`]."""


def gather_objects(value: Any) -> list[Any]:
    """Returns the value of each process in rank order, by pickle. For keys and results, not for training steps.

    Raises:
        OtherProcessFailed: If another process left a [`fail_together`] block with an error.
    """
    return _exchange(None, value)


@contextmanager
def fail_together() -> Iterator[None]:
    """Makes all processes raise if one of them raises inside the block, so none waits for a failed process.

    The others raise [`OtherProcessFailed`] at their next [`gather_objects`], at the latest at the end of the block.
    All processes must enter the block, and no other collective may be called inside. Blocks may be nested.
    """
    try:
        yield
    except OtherProcessFailed:
        raise
    except Exception as error:
        # The other processes wait in an exchange for a value from this process. It sends its failure instead, exactly
        # once: a second message would answer the next exchange and shift all later ones.
        if not _was_sent(error):
            _exchange(f"{type(error).__name__}: {error}", None)
            error.sent_to_all_processes = True  # type: ignore[attr-defined]  # so outer blocks do not resend it
        raise
    gather_objects(None)


@contextmanager
def first_process_first() -> Iterator[None]:
    """Runs the block first on one process per machine, then on the others, which reuse what it downloaded or cached.

    An error in one process is raised on all, as in [`fail_together`].
    """
    # All processes use the same exchange: the others wait in it before the block, and the first one enters it after
    # the block.
    first = int(os.environ.get("LOCAL_RANK", rank())) == 0
    with fail_together():
        if not first:
            gather_objects(None)
        yield
        if first:
            gather_objects(None)


def run_on_main_process(function: Callable[[], Any], *, every: float = 30.0) -> Any:
    """Runs a function on the main process and returns its result on all, which wait for it however long it takes.

    The main process computes in a thread, and all processes exchange messages regularly, so no collective reaches its
    time limit. An error is raised on all, as in [`fail_together`]. The function must not call collectives, and its
    result is pickled. `every` is the number of seconds between two exchanges.
    """
    if world_size() == 1:
        return function()
    # A thread, because a collective that waits for one process longer than the group's time limit (10 minutes by
    # default with NCCL) kills the run. Short exchanges never do.
    task: Future[Any] = Future()

    def work() -> None:
        try:
            task.set_result(function())
        except BaseException as error:  # an error that is not passed on would keep all processes waiting
            task.set_exception(error)

    if rank() == 0:
        threading.Thread(target=work, daemon=True).start()
    with fail_together():
        while True:
            if rank() == 0:
                wait([task], timeout=every)
            ready = task.done()
            done, value = gather_objects((ready, task.result() if ready else None))[0]
            if done:
                return value


def _exchange(failure: str | None, value: Any) -> list[Any]:
    if world_size() == 1:
        return [value]
    messages: list[Any] = [None] * world_size()
    try:
        dist.all_gather_object(messages, (failure, value))
    except RuntimeError as error:  # the connection is gone, so no process can be notified
        error.sent_to_all_processes = True  # type: ignore[attr-defined]
        raise
    # A failed process raises its own error with its own traceback; the others name the process.
    if failure is None:
        for number, (message, _) in enumerate(messages):
            if message is not None:
                raise OtherProcessFailed(f"process {number} failed: {message}")
    return [sent for _, sent in messages]


def _was_sent(error: BaseException | None) -> bool:
    """Whether an error, or an error it was raised from, was sent to the other processes."""
    while error is not None:
        if isinstance(error, OtherProcessFailed) or getattr(error, "sent_to_all_processes", False):
            return True
        error = error.__cause__
    return False
