"""Sampled batches: negatives drawn per epoch, and additional rows with hard images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.data import Sampler
from transformers.utils import logging

from hfcomp.data.columns import require_columns
from hfcomp.data.loading import TrainingRows
from hfcomp.data.sampling.draws import DrawnNegatives, EpochOrder
from hfcomp.data.sampling.neighbors import NEIGHBOR_COLUMNS, NeighborOrder, Neighbors
from hfcomp.trainers._support.sampling import make_epoch_aware
from hfcomp.trainers._support.transformers_internals import train_batch_size
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.config import CompositionalConfig, Limits, option, sampling_seed

logger = logging.get_logger(__name__)


@dataclass
class DrawnBatchConfig(CompositionalConfig):
    """Arguments of trainers with sampled batches."""

    draw_negatives: bool = option(
        False, "Sample num_negatives of a row's negative captions in each epoch. If false, use the first ones."
    )
    num_neighbors: int = option(
        0,
        "Rows that each row brings along in training, sampled from the images listed in its neighbor_ids. "
        "per_device_train_batch_size does not count them: the contrastive batch is 1 + num_neighbors times as large.",
        limits=Limits(ge=0, advice=" (none)"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draw_negatives and not self.num_negatives:
            raise ValueError("draw_negatives=True samples from a row's num_negatives, which is 0. Set num_negatives.")

    def batch_notes(self) -> list[str]:
        """Adds the rows that each row brings along."""
        number = self.num_neighbors
        added = [f"each with {number} neighbor{'s' if number > 1 else ''}"] if number else []
        return [*added, *super().batch_notes()]


class DrawnBatchTrainer(CompositionalTrainer):
    """Base of objectives with sampled batches.

    With `num_neighbors`, each row of the training set brings along rows with hard images (NegCLIP, Yuksekgonul et
    al. 2022). This needs the columns `neighbor_ids` and `image_id`; see [`NeighborOrder`]. The authors sample at
    each access; here samples are drawn per epoch, so they do not depend on processes or workers. Evaluation sets
    bring no rows along and use the first negatives.
    """

    config_class = DrawnBatchConfig

    @classmethod
    def check_rows(cls, rows: Any, args: DrawnBatchConfig) -> str | None:
        """Also checks the columns that determine which rows are brought along."""
        dataset = getattr(rows, "dataset", rows)
        if args.num_neighbors and dataset.column_names is not None:
            require_columns(dataset, NEIGHBOR_COLUMNS, needed_by=f"{cls.__name__} with num_neighbors")
        return super().check_rows(rows, args)

    def training_rows(self, dataset: Any, args: DrawnBatchConfig) -> TrainingRows | None:
        """Reads the rows with sampled negatives, and what is needed to bring neighbors along.

        Raises:
            ValueError: For a `train_sampling_strategy` that does not support sampling.
        """
        samples = args.num_neighbors or args.draw_negatives
        if samples and args.train_sampling_strategy not in ("random", "sequential"):
            raise ValueError(
                f"train_sampling_strategy={str(args.train_sampling_strategy)!r} is not supported with "
                "num_neighbors or draw_negatives. Use 'random' or 'sequential'."
            )
        self.neighbors = None
        rows = self.read_rows(dataset, args, NEIGHBOR_COLUMNS if args.num_neighbors else ())
        if rows is None:
            return None
        if args.num_neighbors:
            self.neighbors = Neighbors.from_columns(*map(rows.column, (*NEIGHBOR_COLUMNS, "caption")))
            _warn_of_missing(self.neighbors)
        return DrawnNegatives(rows, seed=sampling_seed(args)) if args.draw_negatives else rows

    def row_order(self, order: Sampler) -> Sampler:
        """Adds the sampled neighbor rows, and the epoch for sampling negatives."""
        if self.neighbors is None and not self.args.draw_negatives:
            return order
        # Neighbors are added to rows that are already ordered, and negatives are drawn for all rows of the batch,
        # added ones included, so the order of the three steps matters.
        order = make_epoch_aware(order, sampling_seed(self.args))
        if self.neighbors is not None:
            batch_size = train_batch_size(self) * self.args.world_size
            number, seed = self.args.num_neighbors, sampling_seed(self.args)
            order = NeighborOrder(order, self.neighbors, number=number, batch_size=batch_size, seed=seed)
            self.neighbor_order = order
        return EpochOrder(order) if self.args.draw_negatives else order

    def rows_per_batch(self, batch_size: int) -> int:
        """Counts each row together with the rows it brings along."""
        return batch_size * (1 + self.args.num_neighbors)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs the share of added rows that are not neighbors."""
        if self.neighbors is not None and "loss" in logs and self.neighbor_order.num_added:
            logs["unrelated_neighbor_share"] = self.neighbor_order.unrelated / self.neighbor_order.num_added
        super().log(logs, start_time)


def _warn_of_missing(neighbors: Neighbors) -> None:
    without, unknown = neighbors.num_without_neighbors, neighbors.unknown
    if without:
        logger.warning(
            f"{without} of {len(neighbors.image)} rows have no neighbor in the dataset; a random row is used instead."
        )
    if unknown:
        logger.warning(
            f"{unknown} entries of neighbor_ids are not image_id values of the training set and are ignored."
        )
