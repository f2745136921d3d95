"""Shared code of trainers whose global batch is a group of pairs with its hard-negative groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import Sampler
from transformers.utils import logging

from hfcomp.data.columns import require_columns
from hfcomp.data.concepts.level_names import level_columns, level_names
from hfcomp.data.loading import TrainingRows
from hfcomp.data.sampling.groups import GROUP_COLUMNS, BatchGroups, GroupOrder, Groups, rows_per_process
from hfcomp.distributed import gather, rank, world_size
from hfcomp.trainers._support.replay import replay_rows
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.config import CompositionalConfig, option, sampling_seed

logger = logging.get_logger(__name__)


@dataclass
class GroupedConfig(CompositionalConfig):
    """Arguments of every trainer whose batches are groups. The two sizes are CLEAR GLASS's (Table 2)."""

    groups_per_batch: int = option(
        2, "Groups per global batch: a group and its hard negatives. At least 2.", "the paper, Table 2"
    )
    pairs_per_group: int = option(10, "Pairs per group.", "the paper, Table 2")
    minimum_group_size: int = option(
        2, "Minimum rows a group needs to take part; smaller groups are counted and left out."
    )
    per_device_train_batch_size: int = option(
        0, "Computed from groups_per_batch and pairs_per_group; any other value is an error."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups_per_batch < 2 or self.pairs_per_group < 1 or self.minimum_group_size < 1:
            raise ValueError(
                "expected groups_per_batch of at least 2, pairs_per_group of at least 1 and minimum_group_size of at "
                f"least 1; found {self.groups_per_batch}, {self.pairs_per_group} and {self.minimum_group_size}."
            )
        if self.auto_find_batch_size:
            raise ValueError("auto_find_batch_size=True would split groups. Use mini_batch_size instead.")
        rows = rows_per_process(self.groups_per_batch, self.pairs_per_group, self.world_size)
        if self.per_device_train_batch_size not in (0, rows):
            whole = self.groups_per_batch * self.pairs_per_group
            raise ValueError(
                f"per_device_train_batch_size={self.per_device_train_batch_size} with {self.world_size} processes "
                f"gives {self.per_device_train_batch_size * self.world_size} rows, but {self.groups_per_batch} groups "
                f"of {self.pairs_per_group} pairs are {whole} rows. In Python, leave it out; in a recipe, set "
                f"batch_size={whole}, which is groups_per_batch * pairs_per_group."
            )
        self.per_device_train_batch_size = rows

    def batch_notes(self) -> list[str]:
        """Adds the groups."""
        return [f"{self.groups_per_batch} groups of {self.pairs_per_group}", *super().batch_notes()]


class GroupedTrainer(CompositionalTrainer):
    """Base of objectives on batches of groups, in the order of [`hfcomp.data.sampling.groups.GroupOrder`].

    Needs the columns `group` and `hard_negative_groups`. A process holds whole groups, so `groups_per_batch` must be a
    multiple of the number of processes. At the start, the log describes an epoch, and warnings report what an epoch
    lacks and which captions are concept names (`level_1` to `level_4` are read only for that). The sampling depends
    only on `data_seed` (unset: `seed`) and the epoch.

    Evaluation sets are read in their own order and need neither column.
    """

    config_class = GroupedConfig

    @classmethod
    def check_rows(cls, rows: Any, args: GroupedConfig) -> str | None:
        """Also checks that the group columns yield a batch."""
        dataset = getattr(rows, "dataset", rows)
        if isinstance(dataset, Dataset):
            require_columns(dataset, GROUP_COLUMNS, needed_by=cls.__name__)
            _group_order([dataset[name][:] for name in GROUP_COLUMNS], args)
        return super().check_rows(rows, args)

    def training_rows(self, dataset: Any, args: GroupedConfig) -> TrainingRows | None:
        """Reads the rows with the group columns, from which `self.group_order` builds batches.

        Raises:
            ValueError: For a `train_sampling_strategy` other than random, or columns that do not yield a batch.
        """
        if args.train_sampling_strategy != "random":
            raise ValueError(
                f"train_sampling_strategy={str(args.train_sampling_strategy)!r}: group batches define their own "
                "order. Keep 'random'."
            )
        if args.no_duplicates:
            raise ValueError("no_duplicates=True: group batches define their own order. Remove it.")
        levels = level_columns(dataset, args.column_names)
        rows = self.read_rows(dataset, args, tuple(dict.fromkeys((*GROUP_COLUMNS, *levels))))
        if rows is not None:
            self.group_order = _group_order([rows.column(name) for name in GROUP_COLUMNS], args)
            logger.info(self.group_order.report.summary())
            for line in (*self.group_order.report.warnings(), *_concept_name_warnings(rows)):
                logger.warning(line)
        return rows

    def setup(self, args: GroupedConfig, backbone: nn.Module) -> None:
        """Sets the layout of groups in the global batch."""
        replayed = replay_rows(args, args.per_device_train_batch_size)
        self.groups = BatchGroups(args.groups_per_batch, args.pairs_per_group, replayed)

    def pair_mask(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Marks the rows of the global batch that are pairs, not repeats that fill a group with too few rows.

        Args:
            inputs: This process's training batch.

        Returns:
            `[G, pairs_per_group]` bool. A replay row is the only pair in its own group.
        """
        # The loss needs the mask of the global batch; every process has the same number of groups.
        own = self.groups.mask(inputs["row"], rank(), world_size())
        return gather(own, sizes=[len(own)] * world_size())[0]

    def split_groups(self, values: torch.Tensor) -> torch.Tensor:
        """Reshapes embeddings `[N, D]` or ids `[N]` of the global batch by group: `[G, pairs_per_group, ...]`."""
        return self.groups.group_values(values)

    def group_slice(self, rows: slice) -> slice:
        """Returns this process's slice of groups.

        Args:
            rows: This process's slice of the rows of the global batch.
        """
        # Processes hold whole groups, so both divisions are exact.
        number, total = self.groups.number, self.groups.rows
        return slice(rows.start * number // total, rows.stop * number // total)

    def rows_together(self, args: GroupedConfig) -> int:
        """Returns the number of rows per group."""
        return args.pairs_per_group

    def check_epoch(self, batch: int) -> None:
        """Checks nothing: an epoch consists of full batches, and `training_rows` has logged what it leaves out."""

    def row_order(self, order: Sampler) -> Sampler:
        """Returns the order by groups and their hard negatives."""
        return self.group_order


def _group_order(columns: Sequence[Sequence[Any]], args: GroupedConfig) -> GroupOrder:
    groups = Groups.from_columns(*columns, minimum_size=args.minimum_group_size)
    sizes = {"groups_per_batch": args.groups_per_batch, "pairs_per_group": args.pairs_per_group}
    return GroupOrder(groups, **sizes, seed=sampling_seed(args))


def _concept_name_warnings(rows: TrainingRows) -> list[str]:
    """Returns a line about captions that are names of concepts; empty if there are none."""
    named = level_names(rows, ("caption",))
    return [
        f"{len(named):,} of {len(rows):,} captions are the name of a concept, the first in row {row}: {match.text!r} "
        f"(column {match.level!r}). A model trained on them cannot be tested on such names as unseen."
        for row, match in list(named.items())[:1]
    ]
