"""The order of a trainer's training rows in each epoch, under accelerate's loader."""

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
from hfcomp.trainers.config import seed_of_order

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class EpochSampling:
    """The sampler of a training set.

    Attributes:
        sampler: yields the rows of an epoch; it has `set_epoch` if epochs differ.
        is_own: whether accelerate does not know it, so that it has to be given the epoch.
        apart: with `no_duplicates`, the order that keeps equal rows out of a batch.
    """

    sampler: Sampler
    is_own: bool
    apart: NoDuplicatesOrder | None = None

    def unplaced_rows(self) -> dict[str, float]:
        """For the log, how many rows of the epoch fit into no batch, if there are any."""
        return {"unplaced_rows": self.apart.left_out} if self.apart and self.apart.left_out else {}


def sample_epochs(trainer: Any, rows: Any) -> EpochSampling:
    """The order that a config asks for: by strategy, without duplicates, as the objective has it, with replay rows."""
    args, seed = trainer.args, seed_of_order(trainer.args)
    plain = _plain_order(trainer, rows)
    apart = _without_duplicates(trainer, plain, rows) if args.no_duplicates else None
    # Each order takes the rows of the one before it: neighbors are added to rows that have no duplicates already.
    order = trainer.row_order(apart or plain)
    # Rows that draw need the epoch in which they are read. An EpochOrder passes it with each index.
    draws = args.draw_captions or args.random_crop < 1
    if draws and not isinstance(order, EpochOrder):
        order = EpochOrder(with_epochs(order, seed))
    # Last, because replay rows fill up global batches that are planned already.
    if (both := find_replay(rows)) is not None:
        order = replay_order(trainer, with_epochs(order, seed), both)
    return EpochSampling(order, order is not plain or isinstance(plain, LengthGroupedOrder), apart)


def with_epochs(order: Sampler, seed: int) -> Sampler:
    """An order of rows that hears of its epoch: of a random one, that which accelerate would make of it."""
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


def _without_duplicates(trainer: Any, order: Any, rows: Any) -> NoDuplicatesOrder:
    args = trainer.args
    if not trainer.contrasted_columns:
        raise ValueError(f"no_duplicates=True: {type(trainer).__name__} contrasts no rows. Leave it out.")
    seed, batch = seed_of_order(args), train_batch_size(trainer) * args.world_size
    names = rows.dataset.column_names
    texts = [rows.column(name) for name in trainer.contrasted_columns]
    reads = args.num_negatives and "negative_captions" in names
    keys = RowKeys.from_columns(
        texts[0] if len(texts) == 1 else [list(row) for row in zip(*texts, strict=True)],
        rows.column(IMAGE_ID) if IMAGE_ID in names else None,
        rows.column("negative_captions") if reads else None,
    )
    apart = NoDuplicatesOrder(with_epochs(order, seed), keys, batch_size=batch, seed=seed)
    # Planned now, to warn of what the first epoch leaves out before training starts. The epoch reuses this plan.
    apart.plan(0)
    if apart.left_out:
        logger.warning(
            f"no_duplicates: in the first epoch {apart.left_out:,} of {len(keys):,} rows fit into no batch "
            "without an equal text or image and are left out; others are repeated in their places. The log counts "
            "them as unplaced_rows."
        )
    return apart


def _order_by_length(trainer: Any, rows: Any) -> LengthGroupedOrder:
    args, config = trainer.args, trainer.model.config
    tokenizer = TextTokenizer.from_processor(trainer.processing_class, config)
    if tokenizer.pad_to_full:
        raise ValueError(
            f"train_sampling_strategy='group_by_length': {config.model_type} pads every text to "
            f"{tokenizer.max_length} tokens, so that it would save nothing. Leave it out."
        )
    lengths = text_lengths(rows, tokenizer, num_negatives=args.num_negatives)
    batch = train_batch_size(trainer) * args.world_size
    return LengthGroupedOrder(lengths, batch_size=batch, seed=seed_of_order(args))
