"""An optimiser of sharded and of whole parameters, whose state is saved as one process saves it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from hfcomp.distributed.shards import part_like, whole_of


class SplitOptimizer:
    """Splits the groups of an optimiser, and joins and splits its state and that of its scheduler.

    A kernel that updates many tensors at once takes either sharded or whole ones: the whole ones of each group become
    a group of their own, behind all others. A state is joined where it is saved and split where it is loaded, so that
    any number of processes, with or without FSDP, can resume from it.

    Args:
        optimizer: as the Trainer makes it, before weights are sharded.
        model: whose parameters it has.
        whole: the parameters that will not be sharded.

    Raises:
        ValueError: for an optimiser whose state is not as large as its parameters.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module, whole: Iterable[nn.Parameter]) -> None:
        kind = type(optimizer)
        if not kind.__module__.startswith("torch.optim.") or kind.__name__ == "Adafactor":
            raise ValueError(
                f"optim={kind.__name__} is not supported with FSDP: its state cannot be split as the weights are. "
                "Set optim=adamw_torch_fused (the default), adamw_torch or sgd."
            )
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        kept = {id(parameter) for parameter in whole}
        self.groups = [[names[id(one)] for one in group["params"]] for group in optimizer.param_groups]
        self.origins = [*range(len(self.groups))]
        for index, group in enumerate(list(optimizer.param_groups)):
            own = [one for one in group["params"] if id(one) in kept]
            if 0 < len(own) < len(group["params"]):
                group["params"] = [one for one in group["params"] if id(one) not in kept]
                optimizer.add_param_group({**group, "params": own})
                self.origins.append(index)

    def whole_state(self, optimizer: Any, model: nn.Module, *, kept: bool) -> dict[str, Any]:
        """The optimiser's state as if nothing was split, on the CPU; without tensors where it is not `kept`.

        A collective: one tensor at a time is whole on the device.
        """
        parameters, state, groups = dict(model.named_parameters()), {}, []
        for index, names in enumerate(self.groups):
            start = sum(map(len, self.groups[:index]))
            settings = optimizer.param_groups[index]
            groups.append({**settings, "params": [*range(start, start + len(names))]})
            for number, name in enumerate(names, start):
                found = {key: _whole(value, kept) for key, value in optimizer.state.get(parameters[name], {}).items()}
                if found and kept:
                    state[number] = found
        return {"state": state, "param_groups": groups}

    def load(self, optimizer: Any, model: nn.Module, stored: dict[str, Any]) -> None:
        """Loads what [`whole_state`] returned, or an optimiser's state that was saved without FSDP.

        Raises:
            ValueError: when it is of other parameters.
        """
        sizes = [len(group["params"]) for group in stored["param_groups"]]
        if sizes != [len(names) for names in self.groups]:
            raise ValueError(
                f"the checkpoint's optimiser has groups of {sizes} parameters, this run's has "
                f"{[len(names) for names in self.groups]}. Resume with the settings that wrote the checkpoint."
            )
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        every = [name for group in self.groups for name in group]
        numbers = dict(zip(every, (n for group in stored["param_groups"] for n in group["params"]), strict=True))
        state, groups, count = {}, [], 0
        for group, origin in zip(optimizer.param_groups, self.origins, strict=True):
            parameters = group["params"]
            groups.append({**stored["param_groups"][origin], "params": [*range(count, count + len(parameters))]})
            for parameter in parameters:
                found = stored["state"].get(numbers[names[id(parameter)]], {})
                if found:
                    state[count] = {key: _part(value, parameter) for key, value in found.items()}
                count += 1
        optimizer.load_state_dict({"state": state, "param_groups": groups})

    def joined(self, state: dict[str, Any]) -> dict[str, Any]:
        """A scheduler's state without the entries of the groups that were added."""
        return {
            key: value[: len(self.groups)] if _is_per_group(value, len(self.origins)) else value
            for key, value in state.items()
        }

    def spread(self, state: dict[str, Any]) -> dict[str, Any]:
        """A scheduler's state with an entry for each group, which is that of the group it was part of."""
        return {
            key: [value[origin] for origin in self.origins] if _is_per_group(value, len(self.groups)) else value
            for key, value in state.items()
        }


def _is_per_group(value: Any, groups: int) -> bool:
    return isinstance(value, list) and len(value) == groups


def _whole(value: Any, kept: bool) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    whole = whole_of(value)
    return whole.cpu() if kept else None


def _part(value: Any, parameter: nn.Parameter) -> Any:
    same = isinstance(value, torch.Tensor) and value.shape == parameter.shape
    return part_like(value, parameter) if same else value
