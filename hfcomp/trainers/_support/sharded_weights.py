"""Reads and writes weights and optimizer state, plain or sharded by FSDP2; sharded ones are joined when saved."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from torch import nn
from transformers import TrainerCallback
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from hfcomp.distributed.shards import (
    average_gradients,
    copy_from_main,
    gather_whole,
    half_precision,
    is_sharded,
    local_part,
    reshard,
    split_like,
)
from hfcomp.modeling import DualEncoder
from hfcomp.modeling.checkpoints import OBJECTIVE_PREFIX
from hfcomp.trainers._support.fsdp_checks import check_launcher, check_plugin, check_run, shard_unit_names, uses_fsdp
from hfcomp.trainers._support.transformers_internals import reduce_every_batch, shard_on_cpus
from hfcomp.writing import replacing


def make_weights(trainer: Any) -> PlainWeights:
    """Creates the reader and writer of a trainer's weights. Called once its accelerator exists."""
    args, accelerator = trainer.args, trainer.accelerator
    check_launcher(args, accelerator)
    if uses_fsdp(args) and accelerator.state.distributed_type == DistributedType.MULTI_CPU:
        shard_on_cpus(trainer)
    return ShardedWeights(trainer) if trainer.is_fsdp_enabled else PlainWeights(trainer)


class PlainWeights:
    """Weights that every process holds completely. transformers saves and loads the optimizer's state."""

    is_sharded = False

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def whole_model(self, *, kept: bool = True) -> DualEncoder:
        return self.trainer.model

    def load(self, folder: str | Path) -> None:
        self.trainer.model.load_pretrained(folder)

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before accelerate prepares model and optimizer for training."""

    def check_evaluation(self) -> None:
        """Called before an evaluation."""


class ShardedWeights(PlainWeights, TrainerCallback):
    """Weights that FSDP2 shards, saved as a single process saves them.

    Each layer of a tower is an FSDP unit, which is gathered for its own forward pass. All other weights belong to the
    unit of the `DualEncoder`, whose forward pass includes every call of a tower. Scalars and the objective's state
    stay whole on every process.
    """

    is_sharded = True

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        accelerator = trainer.accelerator
        plugin = accelerator.state.fsdp_plugin
        check_plugin(plugin)
        check_run(trainer.args, accelerator)
        if accelerator.mixed_precision == "bf16":
            plugin.mixed_precision_policy = half_precision(torch.bfloat16)
        reduce_every_batch(accelerator)
        self._whole_shape: DualEncoder | None = None
        self._optimizer: SplitOptimizer | None = None

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Prepares the model, which accelerate shards right after this call, and splits the optimizer's groups."""
        model = self.trainer.model
        if self._optimizer is None:
            self._optimizer = SplitOptimizer(optimizer, model, replicated_parameters(model))
        if is_sharded(model):
            return
        accelerator = self.trainer.accelerator
        device, plugin = accelerator.device, accelerator.state.fsdp_plugin
        # As in DDP, because randomly initialized weights may differ between processes.
        copy_from_main([*model.parameters(), *model.buffers()], device)
        # This copy has only shapes; it gets its values when the model is saved.
        weights = list(model.parameters())
        whole = {id(weight): nn.Parameter(weight.detach().to("meta"), weight.requires_grad) for weight in weights}
        self._whole_shape = copy.deepcopy(model, whole)
        scalars = replicated_parameters(model)
        for parameter in scalars:
            parameter.data = parameter.data.to(device)
            if parameter.requires_grad:
                # FSDP2 averages only the gradients of the parameters that it shards.
                parameter.register_post_accumulate_grad_hook(self._average)
        # accelerate expects modules and ignores their parameters.
        plugin.ignored_modules = [nn.ParameterList(scalars)]
        plugin.transformer_cls_names_to_wrap = plugin.transformer_cls_names_to_wrap or shard_unit_names(model)

    def _average(self, parameter: nn.Parameter) -> None:
        # Once per step is enough: the average of a sum over several batches is the sum of their averages.
        if self.trainer.accelerator.sync_gradients:
            average_gradients([parameter])

    def check_evaluation(self) -> None:
        """Raises ValueError if the model has not been trained yet, because training shards the weights."""
        if not is_sharded(self.trainer.model):
            raise ValueError(
                "evaluation before training is not supported with FSDP, because the weights are sharded when training "
                "begins. Evaluate after training, set eval_on_start=True, or evaluate without FSDP."
            )

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # The backward pass frees the weights that a forward pass gathers. An evaluation has none and would keep them.
        reshard(self.trainer.model)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        reshard(self.trainer.model)

    def whole_model(self, *, kept: bool = True) -> DualEncoder:
        """Returns the model or, if it is sharded, a copy: on the CPU, or without values if `kept` is False."""
        model = self.trainer.model
        if not is_sharded(model):
            return model
        reshard(model)
        # Only one tensor at a time is whole on the device.
        state = {
            name: gather_whole(value.detach()).to("cpu" if kept else "meta")
            for name, value in model.state_dict().items()
        }
        # The copy is saved by the same code as the model of a single process, so the files cannot differ.
        whole = copy.deepcopy(self._whole_shape)
        whole.load_state_dict(state, assign=True)
        return whole

    def load(self, folder: str | Path) -> None:
        model, whole = self.trainer.model, self.whole_model()
        whole.load_pretrained(folder)
        if whole is model:
            return
        state = model.state_dict()
        with torch.no_grad():
            for name, value in whole.state_dict().items():
                local_part(state[name]).copy_(local_part(split_like(value, state[name])))

    def save_optimizer(self, folder: Path) -> None:
        """Writes the state of optimizer and scheduler as a single process writes it."""
        trainer, kept = self.trainer, self.trainer.args.should_save
        states = {
            OPTIMIZER_NAME: self._optimizer.whole_state(trainer.optimizer, trainer.model, kept=kept),
            SCHEDULER_NAME: self._optimizer.join_groups(trainer.lr_scheduler.state_dict()),
        }
        if kept:
            for name, state in states.items():
                with replacing(folder / name) as part:
                    torch.save(state, part)

    def load_optimizer(self, folder: Path) -> None:
        """Loads what `save_optimizer` or a single process wrote. Does nothing if a checkpoint has only the model."""
        paths = [folder / name for name in (OPTIMIZER_NAME, SCHEDULER_NAME)]
        if not all(path.is_file() for path in paths):
            return
        # mmap, because each process reads only its part of a state that Adam makes twice as large as the model.
        optimizer, scheduler = (torch.load(path, map_location="cpu", weights_only=True, mmap=True) for path in paths)
        self._optimizer.load(self.trainer.optimizer, self.trainer.model, optimizer)
        self.trainer.lr_scheduler.load_state_dict(self._optimizer.spread_groups(scheduler))


def replicated_parameters(model: DualEncoder) -> list[nn.Parameter]:
    """Returns the parameters that stay whole on every process: scalars, and all of the objective's parameters."""
    named = model.named_parameters()
    return [weight for name, weight in named if weight.numel() == 1 or name.startswith(OBJECTIVE_PREFIX)]


class SplitOptimizer:
    """Splits the groups of an optimizer, and joins and splits its state and that of its scheduler.

    A fused optimizer kernel cannot update sharded and whole tensors together. The whole parameters of each group are
    therefore moved to a separate group after all others. States are joined when saved and split when loaded, so any
    number of processes, with or without FSDP, can resume from them.

    Args:
        optimizer: The Trainer's optimizer, before weights are sharded.
        whole: Parameters that will not be sharded.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module, whole: Iterable[nn.Parameter]) -> None:
        kind = type(optimizer)
        if not kind.__module__.startswith("torch.optim.") or kind.__name__ == "Adafactor":
            raise ValueError(
                f"optim={kind.__name__} is not supported with FSDP: its state cannot be split like the weights. Set "
                "optim=adamw_torch_fused (the default), adamw_torch or sgd."
            )
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        whole_ids = {id(parameter) for parameter in whole}
        # The groups as saved: those of a single process, before the whole parameters are moved.
        self.groups = [[names[id(weight)] for weight in group["params"]] for group in optimizer.param_groups]
        self.origins = [*range(len(self.groups))]
        for index, group in enumerate(list(optimizer.param_groups)):
            moved = [weight for weight in group["params"] if id(weight) in whole_ids]
            if 0 < len(moved) < len(group["params"]):
                group["params"] = [weight for weight in group["params"] if id(weight) not in whole_ids]
                optimizer.add_param_group({**group, "params": moved})
                self.origins.append(index)

    def whole_state(self, optimizer: Any, model: nn.Module, *, kept: bool) -> dict[str, Any]:
        """Returns the optimizer's state as if nothing had been split, on the CPU; without tensors if `kept` is False.

        All processes must call this together. Only one tensor at a time is whole on the device.
        """
        parameters, state, groups = dict(model.named_parameters()), {}, []
        for index, names in enumerate(self.groups):
            start = sum(map(len, self.groups[:index]))
            settings = optimizer.param_groups[index]
            groups.append({**settings, "params": [*range(start, start + len(names))]})
            for number, name in enumerate(names, start):
                values = optimizer.state.get(parameters[name], {})
                values = {key: _gather_value(value, kept) for key, value in values.items()}
                if values and kept:
                    state[number] = values
        return {"state": state, "param_groups": groups}

    def load(self, optimizer: Any, model: nn.Module, stored: dict[str, Any]) -> None:
        """Loads what [`whole_state`] returned, or an optimizer's state that was saved without FSDP."""
        sizes = [len(group["params"]) for group in stored["param_groups"]]
        if sizes != [len(names) for names in self.groups]:
            raise ValueError(
                f"the checkpoint's optimizer has groups of {sizes} parameters, but this run's has "
                f"{[len(names) for names in self.groups]}. Resume with the settings that the checkpoint was made with."
            )
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        ordered = [name for group in self.groups for name in group]
        # A file numbers parameters in the order of a single process's groups. Here whole parameters have moved to
        # other groups, so look them up by name.
        numbers = dict(zip(ordered, (n for group in stored["param_groups"] for n in group["params"]), strict=True))
        state, groups, count = {}, [], 0
        for group, origin in zip(optimizer.param_groups, self.origins, strict=True):
            parameters = group["params"]
            groups.append({**stored["param_groups"][origin], "params": [*range(count, count + len(parameters))]})
            for parameter in parameters:
                values = stored["state"].get(numbers[names[id(parameter)]], {})
                if values:
                    state[count] = {key: _shard_value(value, parameter) for key, value in values.items()}
                count += 1
        optimizer.load_state_dict({"state": state, "param_groups": groups})

    def join_groups(self, state: dict[str, Any]) -> dict[str, Any]:
        """Returns a scheduler's state without the entries of the groups that were added."""
        return {
            key: value[: len(self.groups)] if _is_per_group(value, len(self.origins)) else value
            for key, value in state.items()
        }

    def spread_groups(self, state: dict[str, Any]) -> dict[str, Any]:
        """Returns a scheduler's state with an entry per group; an added group has the entry of its original group."""
        return {
            key: [value[origin] for origin in self.origins] if _is_per_group(value, len(self.groups)) else value
            for key, value in state.items()
        }


def _is_per_group(value: Any, groups: int) -> bool:
    return isinstance(value, list) and len(value) == groups


def _gather_value(value: Any, kept: bool) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    whole = gather_whole(value)
    return whole.cpu() if kept else None


def _shard_value(value: Any, parameter: nn.Parameter) -> Any:
    # Adam's running averages are split like their parameter; step counts are scalars and stay whole.
    same = isinstance(value, torch.Tensor) and value.shape == parameter.shape
    return split_like(value, parameter) if same else value
