"""The order of a trainer's training rows in each epoch, with accelerate's loader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import RandomSampler, Sampler, SequentialSampler
from transformers.utils import logging

from hfcomp.data.image_ids import IMAGE_ID
from hfcomp.data.sampling.draws import EpochOrder
from hfcomp.data.sampling.orders import LengthGroupedOrder, NoDuplicatesOrder, RowKeys, text_lengths
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.trainers._support.replay import find_replay, replay_order
from hfcomp.trainers._support.transformers_internals import train_batch_size
from hfcomp.trainers.config import sampling_seed

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class EpochSampling:
    """Sampler of a training set.

    Attributes:
        sampler: Yields the rows of an epoch. It has `set_epoch` if epochs differ.
        is_own: Whether accelerate does not know the sampler, so it must be given the epoch.
        apart: With `no_duplicates`, the order that keeps equal rows out of a batch.
    """

    sampler: Sampler
    is_own: bool
    apart: NoDuplicatesOrder | None = None

    def unplaced_rows(self) -> dict[str, float]:
        """Counts the rows that fit into no batch of the epoch, for the log. Empty if there are none."""
        return {"unplaced_rows": self.apart.left_out} if self.apart and self.apart.left_out else {}


def sample_epochs(trainer: Any, rows: Any) -> EpochSampling:
    """Builds the order: the config's strategy, no duplicates, the objective's order, then replay rows."""
    args, seed = trainer.args, sampling_seed(trainer.args)
    plain = _plain_order(trainer, rows)
    apart = _order_without_duplicates(trainer, plain, rows) if args.no_duplicates else None
    # Each order builds on the previous one: neighbors are added to rows that are already free of duplicates.
    order = trainer.row_order(apart or plain)
    # Rows with per-epoch sampling need the epoch in which they are read. An EpochOrder passes it with each index.
    draws = args.draw_captions or args.random_crop < 1
    if draws and not isinstance(order, EpochOrder):
        order = EpochOrder(make_epoch_aware(order, seed))
    # Last, because replay rows fill up global batches that are already planned.
    if (both := find_replay(rows)) is not None:
        order = replay_order(trainer, make_epoch_aware(order, seed), both)
    return EpochSampling(order, order is not plain or isinstance(plain, LengthGroupedOrder), apart)


def make_epoch_aware(order: Sampler, seed: int) -> Sampler:
    """Returns an order that receives its epoch. A random order becomes the one that accelerate would create."""
    if isinstance(order, RandomSampler):
        return SeedableRandomSampler(data_source=order.data_source, data_seed=seed)
    return order


def _plain_order(trainer: Any, rows: Any) -> Sampler:
    strategy = trainer.args.train_sampling_strategy
    if strategy == "group_by_length":
        return _order_by_length(trainer, rows)
    if strategy not in ("random", "sequential"):
        raise ValueError(
            f"train_sampling_strategy={str(strategy)!r} is not supported. Use 'random', 'sequential' or "
            "'group_by_length'."
        )
    return SequentialSampler(rows) if strategy == "sequential" else RandomSampler(rows)


def _order_without_duplicates(trainer: Any, order: Any, rows: Any) -> NoDuplicatesOrder:
    args = trainer.args
    if not trainer.contrasted_columns:
        raise ValueError(f"no_duplicates=True: {type(trainer).__name__} does not contrast rows. Remove it.")
    seed, batch = sampling_seed(args), train_batch_size(trainer) * args.world_size
    names = rows.dataset.column_names
    texts = [rows.column(name) for name in trainer.contrasted_columns]
    reads = args.num_negatives and "negative_captions" in names
    keys = RowKeys.from_columns(
        texts[0] if len(texts) == 1 else [list(row) for row in zip(*texts, strict=True)],
        rows.column(IMAGE_ID) if IMAGE_ID in names else None,
        rows.column("negative_captions") if reads else None,
    )
    apart = NoDuplicatesOrder(make_epoch_aware(order, seed), keys, batch_size=batch, seed=seed)
    # Plan now, to warn of rows that the first epoch leaves out before training starts. The epoch reuses the plan.
    apart.plan(0)
    if apart.left_out:
        logger.warning(
            f"no_duplicates: in the first epoch, {apart.left_out:,} of {len(keys):,} rows fit into no batch without "
            "an equal text or image and are left out; others are repeated in their place. The log counts them in "
            "unplaced_rows."
        )
    return apart


def _order_by_length(trainer: Any, rows: Any) -> LengthGroupedOrder:
    args, config = trainer.args, trainer.model.config
    tokenizer = TextTokenizer.from_processor(trainer.processing_class, config)
    if tokenizer.pad_to_full:
        raise ValueError(
            f"train_sampling_strategy='group_by_length': {config.model_type} pads every text to "
            f"{tokenizer.max_length} tokens, so grouping would save nothing. Remove it."
        )
    lengths = text_lengths(rows, tokenizer, num_negatives=args.num_negatives)
    batch = train_batch_size(trainer) * args.world_size
    return LengthGroupedOrder(lengths, batch_size=batch, seed=sampling_seed(args))
