"""An order of rows of hfcomp's own under accelerate's loader."""

from __future__ import annotations

from typing import Any

from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import RandomSampler, Sampler

from hfcomp.trainers.config import CompositionalConfig


def tell_epochs(loader: Any) -> None:
    """Lets a loader pass the epoch to its order of rows, as accelerate does with its own samplers.

    Otherwise a run resumed within an epoch, on several processes, would start with the order of epoch 0.

    Args:
        loader: as `accelerator.prepare` returned it.
    """
    loader.set_sampler(getattr(loader.batch_sampler, "batch_sampler", loader.batch_sampler).sampler)


def with_epochs(order: Sampler, seed: int) -> Sampler:
    """An order of rows that hears of its epoch: of a random one, that which accelerate would make of it.

    Args:
        order: what transformers takes.
        seed: of all draws of rows.
    """
    if isinstance(order, RandomSampler):
        return SeedableRandomSampler(data_source=order.data_source, data_seed=seed)
    return order


def seed_of_order(args: CompositionalConfig) -> int:
    """The seed of all draws of rows: `data_seed`, or `seed` where it is not set."""
    return args.data_seed if args.data_seed is not None else args.seed
