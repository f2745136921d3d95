"""Everything that trainers use from transformers and accelerate beyond their documented interface.

A newer release may change any of it; `tests/trainers/test_transformers_internals.py` has a test for each part.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin, TorchDynamoPlugin
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler
from transformers import Trainer, TrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_utils import HubStrategy, seed_worker
from transformers.utils import logging

logger = logging.get_logger(__name__)

KNOWN_TRACKERS = tuple(INTEGRATION_TO_CALLBACK)
JSON_FIELDS = tuple(TrainingArguments._VALID_DICT_FIELDS)
"""Config fields that a command line passes as JSON."""
LOADER_SETTINGS = (
    *("num_workers", "pin_memory", "persistent_workers", "prefetch_factor"),
    *("multiprocessing_context", "in_order"),  # not in every release
)


class AdaptedTrainer(Trainer):
    """transformers' Trainer with hooks instead of the private methods that read and write a checkpoint."""

    weights: Any
    """A `PlainWeights`, which reads and writes weights and the optimizer's state."""

    def load_checkpoint(self, folder: Path) -> None:
        """Loads what a resumed run needs before its first step, except for optimizer and scheduler."""
        self.weights.load(folder)

    # Private, because transformers has no hook for it. transformers would read the files of a plain model into a
    # `DualEncoder`, whose weights have different names, and does not load the objective's state.
    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        self.load_checkpoint(Path(resume_from_checkpoint))

    # Private for the same reason.
    def _load_best_model(self) -> None:
        logger.info(f"Loading the best model, {self.state.best_model_checkpoint} ({self.state.best_metric}).")
        self.weights.load(self.state.best_model_checkpoint)

    # Private, because transformers has no hook for it. transformers would save a sharded run's state in files that
    # only the same number of processes can read.
    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.weights.is_sharded:
            self.weights.save_optimizer(Path(output_dir))
        else:
            super()._save_optimizer_and_scheduler(output_dir)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self.args.device.type == "cpu":
            # transformers 5.0 would load to `cpu:0` on several processes, which torch does not know.
            self.args.__dict__["_setup_devices"] = torch.device("cpu")
        if not self.weights.is_sharded:
            super()._load_optimizer_and_scheduler(checkpoint)
        elif checkpoint is not None:
            self.weights.load_optimizer(Path(checkpoint))


def train_batch_size(trainer: Trainer) -> int:
    """Returns the task rows per process. `auto_find_batch_size` lowers it without changing the config."""
    return trainer._train_batch_size


def prepare_loader(
    trainer: Trainer,
    rows: Any,
    *,
    batch_size: int,
    collate: Callable[[list[Any]], Any],
    sampler: Sampler | None = None,
    is_training: bool = False,
) -> DataLoader:
    """Creates a data loader for this process's part of the batches, with the config's workers.

    Args:
        rows: Dataset. A stream has no sampler and yields only full batches.
        batch_size: Rows per process.
        sampler: Order of the rows. Defaults to their own.
        is_training: Whether to drop a last, smaller batch if the config says so, and to seed each worker differently.
    """
    args = trainer.args
    known = [name for name in LOADER_SETTINGS if hasattr(args, f"dataloader_{name}")]
    settings = {name: getattr(args, f"dataloader_{name}") for name in known}
    # A stream orders its rows and drops incomplete batches itself.
    if not isinstance(rows, IterableDataset):
        settings |= {"sampler": sampler, "drop_last": is_training and args.dataloader_drop_last}
        if is_training:
            workers = {"num_workers": args.dataloader_num_workers, "rank": args.process_index}
            settings["worker_init_fn"] = partial(seed_worker, **workers)
    return trainer.accelerator.prepare(DataLoader(rows, batch_size=batch_size, collate_fn=collate, **settings))


def set_loader_sampler(loader: Any) -> None:
    """Makes a loader pass the epoch to a sampler unknown to accelerate, as it does for accelerate's own.

    Otherwise a run on several processes that resumes within an epoch would start with the order of epoch 0.
    """
    loader.set_sampler(getattr(loader.batch_sampler, "batch_sampler", loader.batch_sampler).sampler)


def rows_of_last_batch(accelerator: Any) -> int:
    """Returns the number of rows of the current global batch that are not repeats; 0 if none are repeats.

    accelerate fills the last batch of an evaluation with rows from the start.
    """
    state = accelerator.gradient_state
    return state.remainder if state.in_dataloader and state.end_of_dataloader else 0


def forget_preparation(model: nn.Module) -> None:
    """Resets the mark on a bare model that an evaluation before training prepared; DDP would not wrap it otherwise."""
    model._is_accelerate_prepared = False


def compile_nothing(accelerator: Any) -> None:
    """Keeps accelerate from compiling the whole model, whose towers are already compiled."""
    accelerator.state.dynamo_plugin = TorchDynamoPlugin(backend="no")


def shard_on_cpus(trainer: Trainer) -> None:
    """Makes accelerate shard over CPU processes, for which it would silently use DDP."""
    state = trainer.accelerator.state
    state.fsdp_plugin = FullyShardedDataParallelPlugin(**(trainer.args.fsdp_plugin_args or {}))
    # accelerate copies PartialState into its state whenever a state is constructed, so set both.
    state.distributed_type = PartialState().distributed_type = DistributedType.FSDP
    trainer.is_fsdp_enabled = True


def reduce_every_batch(accelerator: Any) -> None:
    """Reduces gradients after each batch of a step; FSDP2 would hold whole gradients until the last batch."""
    accelerator.gradient_state.plugin_kwargs["sync_each_batch"] = True


def without_checkpoint_pushes(args: TrainingArguments) -> TrainingArguments:
    """Returns a config copy with which transformers pushes no checkpoint; `HubPushes` does it.

    Copied because another trainer may use the same config.
    """
    args = copy.copy(args)
    args.hub_strategy = HubStrategy.END
    return args
