"""What changes in the Trainer where FSDP2 shards the weights."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from hfcomp.distributed.shards import (
    average_gradients,
    copy_from_main,
    half_precision,
    is_sharded,
    own_part,
    part_like,
    reshard,
    whole_of,
)
from hfcomp.modeling import DualEncoder
from hfcomp.trainers._support.sharding.checks import check_launcher, check_plugin, check_run, is_asked_for, units_of
from hfcomp.trainers._support.sharding.optimizer import SplitOptimizer
from hfcomp.writing import replacing

OWN_STATE = "objective_state."


class Sharding:
    """The Trainer's FSDP2 with a dual encoder; without FSDP all is as the Trainer does it.

    The layers of the towers are units, gathered whole when their forward runs; what is outside of them belongs to
    the `DualEncoder`, whose forward contains every call of the towers. Scalars and the objective's state stay whole
    on every process.
    """

    def create_accelerator_and_postprocess(self) -> None:
        """Has accelerate shard on CPUs too, where it would silently use DDP."""
        super().create_accelerator_and_postprocess()
        check_launcher(self.args, self.accelerator)
        state = self.accelerator.state
        if is_asked_for(self.args) and state.distributed_type == DistributedType.MULTI_CPU:
            plugin = FullyShardedDataParallelPlugin(**(self.args.fsdp_plugin_args or {}))
            state.fsdp_plugin = plugin
            # accelerate's state takes the type from its part whenever it is asked for
            state.distributed_type = PartialState().distributed_type = DistributedType.FSDP
            self.is_fsdp_enabled = True
        self._whole_shape: DualEncoder | None = None
        self._split_optimizer: SplitOptimizer | None = None
        if not self.is_fsdp_enabled:
            return
        check_plugin(state.fsdp_plugin)
        check_run(self.args, self.accelerator)
        if self.accelerator.mixed_precision == "bf16":
            state.fsdp_plugin.mixed_precision_policy = half_precision(torch.bfloat16)
        # else each process would hold the gradients of the whole model between the batches of a step
        self.accelerator.gradient_state.plugin_kwargs["sync_each_batch"] = True

    # Training

    def _wrap_model(self, model: nn.Module, training: bool = True, dataloader: Any = None) -> nn.Module:
        if self.is_fsdp_enabled and not is_sharded(model):
            if not training:
                raise ValueError(
                    "evaluation before training is not supported with FSDP: the weights are sharded when training "
                    "begins. Evaluate after it, set eval_on_start=True, or evaluate without FSDP."
                )
            self._prepare_sharding(model)
        return super()._wrap_model(model, training, dataloader)

    def _prepare_sharding(self, model: DualEncoder) -> None:
        """Settles what accelerate will shard right after this."""
        device, plugin = self.accelerator.device, self.accelerator.state.fsdp_plugin
        # as DDP does: what was initialised at random may differ
        copy_from_main([*model.parameters(), *model.buffers()], device)
        whole = {id(one): nn.Parameter(one.detach().to("meta"), one.requires_grad) for one in model.parameters()}
        self._whole_shape = copy.deepcopy(model, whole)
        scalars = replicated(model)
        for parameter in scalars:
            parameter.data = parameter.data.to(device)
        # accelerate takes modules and ignores their parameters
        plugin.ignored_modules = [nn.ParameterList(scalars)]
        plugin.transformer_cls_names_to_wrap = plugin.transformer_cls_names_to_wrap or units_of(model)
        self._replicated = scalars

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """Splits its groups: an operation on many tensors at once takes either split or whole ones."""
        optimizer = super().create_optimizer(*args, **kwargs)
        if self.is_fsdp_enabled and self._split_optimizer is None:
            self._split_optimizer = SplitOptimizer(optimizer, self.model, replicated(self.model))
        return optimizer

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Averages the gradients of what is not sharded besides."""
        loss = super().training_step(*args, **kwargs)
        if self.is_fsdp_enabled and self.accelerator.sync_gradients:
            average_gradients(self._replicated)
        return loss

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Frees the weights that a forward without backward leaves whole."""
        output = super().evaluation_loop(*args, **kwargs)
        if is_sharded(self.model):
            reshard(self.model)
        return output

    # Whole weights

    def whole_model(self, *, kept: bool = True) -> DualEncoder:
        """The model with all its weights: itself, or a copy on the CPU of one that is sharded.

        A collective where it is sharded: all processes have to call it, also those that do not need the copy.

        Args:
            kept: whether this process needs it; else it gets weights without values.
        """
        if not is_sharded(self.model):
            return self.model
        reshard(self.model)
        # one tensor at a time is whole on the device
        state = {
            name: whole_of(value.detach()).to("cpu" if kept else "meta")
            for name, value in self.model.state_dict().items()
        }
        model = copy.deepcopy(self._whole_shape)
        model.load_state_dict(state, assign=True)
        return model

    def _load_weights(self, folder: str | Path) -> None:
        model = self.whole_model()
        model.load_pretrained(folder)
        if model is self.model:
            return
        state = self.model.state_dict()
        with torch.no_grad():
            for name, value in model.state_dict().items():
                own_part(state[name]).copy_(own_part(part_like(value, state[name])))

    # Checkpoints: plain models, and the optimiser's state as one process writes it

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Writes a plain model on the main process; with FSDP all processes have to call it."""
        if not self.is_fsdp_enabled:
            super().save_model(output_dir, _internal_call)
            return
        self._save(output_dir)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self.is_fsdp_enabled:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        states = {
            OPTIMIZER_NAME: self._split_optimizer.whole_state(self.optimizer, self.model, kept=self.args.should_save),
            SCHEDULER_NAME: self._split_optimizer.joined(self.lr_scheduler.state_dict()),
        }
        if self.args.should_save:
            for name, state in states.items():
                with replacing(Path(output_dir) / name) as part:
                    torch.save(state, part)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if not self.is_fsdp_enabled:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        if checkpoint is None:
            return
        paths = [Path(checkpoint) / name for name in (OPTIMIZER_NAME, SCHEDULER_NAME)]
        if not all(path.is_file() for path in paths):
            return
        optimizer, scheduler = (torch.load(path, map_location="cpu", weights_only=True, mmap=True) for path in paths)
        self._split_optimizer.load(self.optimizer, self.model, optimizer)
        self.lr_scheduler.load_state_dict(self._split_optimizer.spread(scheduler))


def replicated(model: DualEncoder) -> list[nn.Parameter]:
    """The parameters that stay whole on every process: single numbers, and all of the objective's."""
    return [one for name, one in model.named_parameters() if one.numel() == 1 or name.startswith(OWN_STATE)]
