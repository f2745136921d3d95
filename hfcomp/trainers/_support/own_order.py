"""An order of rows of hfcomp's own under accelerate's loader."""

from __future__ import annotations

from typing import Any

from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import RandomSampler, Sampler, SequentialSampler
from transformers.trainer_utils import has_length
from transformers.utils import logging

from hfcomp.data.epoch_draws import EpochOrder
from hfcomp.data.epoch_order import LengthGroupedOrder, NoDuplicatesOrder, RowKeys, text_lengths
from hfcomp.data.image_ids import IMAGE_ID
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.trainers.config import CompositionalConfig

logger = logging.get_logger(__name__)


class OwnOrder:
    """The order of a trainer's rows: transformers', that of `row_order`, or by the length of their texts."""

    _has_own_order = False
    _apart: NoDuplicatesOrder | None = None

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler | None:
        rows = self.train_dataset if train_dataset is None else train_dataset
        grouped = self.args.train_sampling_strategy == "group_by_length" and has_length(rows)
        order = None if grouped else super()._get_train_sampler(train_dataset)
        read = self._order_by_length(rows) if grouped else order
        self._apart = self._without_duplicates(read, rows) if self.args.no_duplicates else None
        chosen = self.row_order(self._apart or read)
        draws = self.args.draw_captions or self.args.random_crop < 1
        if draws and chosen is not None and not isinstance(chosen, EpochOrder):
            chosen = EpochOrder(with_epochs(chosen, seed_of_order(self.args)))
        if self._replay is not None:
            chosen = self.replay_order(with_epochs(chosen, seed_of_order(self.args)))
        self._has_own_order = chosen is not order
        return chosen

    def _get_eval_sampler(self, eval_dataset: Any) -> Sampler | None:
        """In the order of the set; transformers would look for token ids to group by."""
        if self.args.train_sampling_strategy == "group_by_length" and self.args.world_size == 1:
            return SequentialSampler(eval_dataset)
        return super()._get_eval_sampler(eval_dataset)

    def _without_duplicates(self, order: Any, rows: Any) -> NoDuplicatesOrder:
        """Batches without equal texts and images.

        Raises:
            ValueError: for an objective that contrasts no rows, or rows of which no batch can be made.
        """
        if not self.contrasted_columns:
            raise ValueError(f"no_duplicates=True: {type(self).__name__} contrasts no rows. Leave it out.")
        seed, batch = seed_of_order(self.args), self._train_batch_size * self.args.world_size
        names = rows.dataset.column_names
        texts = [rows.column(name) for name in self.contrasted_columns]
        images = rows.column(IMAGE_ID) if IMAGE_ID in names else None
        reads = self.args.num_negatives and "negative_captions" in names
        keys = RowKeys.of_rows(
            texts[0] if len(texts) == 1 else [list(row) for row in zip(*texts, strict=True)],
            images,
            rows.column("negative_captions") if reads else None,
        )
        apart = NoDuplicatesOrder(with_epochs(order, seed), keys, batch_size=batch, seed=seed)
        apart.plan(0)
        if apart.left_out:
            logger.warning(
                f"no_duplicates: in the first epoch {apart.left_out:,} of {len(keys):,} rows fit into no batch "
                "without an equal text or image and are left out; others are repeated in their places. The log counts "
                "them as unplaced_rows."
            )
        return apart

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds how many rows of the epoch fit into no batch, if there are any."""
        if self._apart is not None and "loss" in logs and self._apart.left_out:
            logs["unplaced_rows"] = self._apart.left_out
        super().log(logs, start_time)

    def _order_by_length(self, rows: Any) -> LengthGroupedOrder:
        """Rows of like length in a batch.

        Raises:
            ValueError: for a model whose texts all have the full length.
        """
        tokenizer = TextTokenizer.from_processor(self.processing_class, self.model.config)
        if tokenizer.pad_to_full:
            raise ValueError(
                f"train_sampling_strategy='group_by_length': {self.model.config.model_type} pads every text to "
                f"{tokenizer.max_length} tokens, so that it would save nothing. Leave it out."
            )
        lengths = text_lengths(rows, tokenizer, num_negatives=self.args.num_negatives)
        batch = self._train_batch_size * self.args.world_size
        return LengthGroupedOrder(lengths, batch_size=batch, seed=seed_of_order(self.args))


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
