"""Values of training steps for the log, kept on the device until a logging step requests them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers.utils import logging

from hfcomp.data.columns import COUNTED_KEYS
from hfcomp.distributed import gather, gather_sizes, sum_over_processes
from hfcomp.distributed.shards import is_sharded, local_part, local_start

# Keys of a batch's texts, each with the key of their positions if equal texts are listed once
TEXT_KEYS = {"input_ids": "text_index", "negative_input_ids": None, "concept_input_ids": "concept_text_index"}
LOGGED_UNLESS_ZERO = {
    "tiny": "tiny_images",
    "uncached": "uncached_images",
    **{name: name for name in ("cut_concepts", "shortened_concepts", "left_out_rows")},
}
# Batches whose loss and rows are kept; a run that never logs must not keep all of them
REMEMBERED_BATCHES = 4096


class StepLog:
    """Sums over the steps since the last log line. Only `drain` and `first_not_finite` wait for the device.

    Args:
        entries: Names of the entries of vector values, by the value's name. NaN entries are not logged.
    """

    def __init__(self, entries: Mapping[str, Sequence[str]] | None = None) -> None:
        self._entries = entries or {}
        self._sums: dict[str, torch.Tensor | int] = {}
        self._steps_of: dict[str, torch.Tensor | int] = {}
        self._counts: dict[str, torch.Tensor | int] = {}
        self._values: dict[str, torch.Tensor] = {}
        self._steps = 0
        self._rows: torch.Tensor | None = None
        self._recent: deque[tuple[torch.Tensor, torch.Tensor]] = deque(maxlen=REMEMBERED_BATCHES)

    def count(self, inputs: dict[str, Any]) -> None:
        """Counts a batch's texts and the values of `COUNTED_KEYS`."""
        self._rows = inputs["row"]
        counted = {key: inputs[key].sum() for key in COUNTED_KEYS if key in inputs and key != "row"}
        if "negative_image_mask" in inputs:
            counted["negative_images"] = inputs["negative_image_mask"].sum()
        counted["images_encoded"] = len(inputs["pixels"]) if "pixels" in inputs else 0
        # Repeats count too, although they are encoded once, because processes have different repeats.
        listed = [inputs.get(index, inputs[key]) for key, index in TEXT_KEYS.items() if key in inputs]
        counted["texts_encoded"] = sum(map(len, listed))
        for key, value in counted.items():
            self._counts[key] = self._counts.get(key, 0) + value

    def record(
        self, loss: torch.Tensor, metrics: dict[str, torch.Tensor], values: dict[str, torch.Tensor | None]
    ) -> None:
        """Keeps a step's loss and rows, adds its metrics, and stores values that are the same on every process."""
        for name, value in metrics.items():
            value = torch.as_tensor(value)
            # NaN marks a step with nothing to measure: it adds 0 and is not counted, without waiting for the device.
            measured = ~value.isnan()
            self._sums[name] = self._sums.get(name, 0) + value.masked_fill(~measured, 0)
            self._steps_of[name] = self._steps_of.get(name, 0) + measured
        # Copied, because a value may be the parameter itself, which the optimizer changes in place.
        self._values = {name: value.detach().clone() for name, value in values.items() if value is not None}
        self._recent.append((loss.detach(), self._rows))
        self._steps += 1

    def drain(self) -> dict[str, float]:
        """Returns metrics as means over steps of the sum over processes, and counts as totals, then resets.

        Steps in which a metric was NaN, because there was nothing to measure, are left out of its mean. A metric
        without any other step is omitted.
        """
        if not self._steps:
            return {}
        names, counted = sorted(self._sums), sorted(self._counts)
        device = self._recent[-1][0].device
        values = [self._sums[name] / self._steps_of[name].clamp(min=1) for name in names]
        values += [self._counts[name] for name in counted] + [self._steps_of[name] for name in names]
        exact = torch.float32 if device.type == "mps" else torch.float64  # Apple's GPUs have no float64
        # One tensor for everything: a single collective and a single wait for the device per log line.
        stacked = torch.stack([torch.as_tensor(value, dtype=exact, device=device) for value in values])
        totals = sum_over_processes(stacked).tolist()
        summed = dict(zip([*names, *counted], totals, strict=False))
        measured = [name for name, steps in zip(names, totals[len(summed) :], strict=True) if steps]
        logs = {name: summed[name] for name in (*measured, "images_encoded", "texts_encoded")}
        logs |= {name: summed[name] for name in ("negative_images",) if name in summed}
        if summed["texts_encoded"]:
            logs["truncated_text_share"] = summed.get("truncated", 0.0) / summed["texts_encoded"]
        for key, name in LOGGED_UNLESS_ZERO.items():
            logs |= {name: summed[key]} if summed.get(key) else {}
        for name, value in self._values.items():
            logs |= self._with_suffix(name, value.flatten().tolist())
        self.__init__(self._entries)
        return logs

    def _with_suffix(self, name: str, values: list[float]) -> dict[str, float]:
        if name in self._entries:
            pairs = zip(self._entries[name], values, strict=True)
            return {f"{name}_{entry}": value for entry, value in pairs if not math.isnan(value)}
        return {name: values[0]} if len(values) == 1 else {f"{name}_{i}": value for i, value in enumerate(values)}

    def first_not_finite(self) -> tuple[int, float, list[int]] | None:
        """Finds the oldest batch since the last log line with a NaN or infinite loss.

        Returns:
            The number of batches since then, its loss, and its rows on all processes; `None` if all are finite.
        """
        if not self._recent:
            return None
        losses = torch.stack([loss for loss, _ in self._recent])
        finite = torch.isfinite(losses).tolist()
        if all(finite):
            return None
        first = finite.index(False)
        # The loss is the global batch's, so either every process reaches this collective or none does.
        rows = self._recent[first][1]
        (everywhere,) = gather(rows, sizes=gather_sizes(len(rows), rows.device))
        return len(finite) - 1 - first, float(losses[first]), everywhere.tolist()


logger = logging.get_logger(__name__)

# Maximum number of entries to compare per parameter
ENTRIES = 4096
# A run that ends below this share has hardly trained.
HARDLY_ANY = 0.01


class ChangedWeights:
    """Share of the trained weights that changed since the start, from 0 to 1.

    At most `ENTRIES` evenly spaced entries of each parameter are compared, as a sample. For ViT-B/32 with its 398
    parameters, that is a copy of 3 MB and a comparison per log line, however large the model is.

    Args:
        model: Model whose parameters with `requires_grad` are tracked from their current values; they may be sharded
            later. A resumed run is compared with the model it was given, which is the one it started from.
    """

    def __init__(self, model: nn.Module) -> None:
        # Keep the model rather than its parameters, which sharding replaces later.
        self._model = model
        self._start = {
            name: _entries(weight).clone()
            for name, weight in model.named_parameters()
            if weight.requires_grad and weight.numel()
        }

    def value(self) -> float:
        """Returns the current share; 0 if nothing is trained. Waits for the device once.

        A collective if the model is sharded.
        """
        if not self._start:
            return 0.0
        weights = dict(self._model.named_parameters())
        counts, compared = [], []
        for name, start in self._start.items():
            now = _entries(weights[name])
            self._start[name] = start = start.to(now.device)
            first = _first_entry(weights[name])
            # Not in float64, which Apple GPUs lack
            counts.append((now != start[first : first + len(now)]).float().sum())
            compared.append(len(now))
        sums = torch.stack(counts)
        sums = torch.stack([sums, sums.new_tensor(compared)])
        shares = torch.div(*(sum_over_processes(sums) if is_sharded(self._model) else sums)).tolist()
        sizes = [weights[name].numel() for name in self._start]
        return sum(share * size for share, size in zip(shares, sizes, strict=True)) / sum(sizes)

    def warn(self, share: float, learning_rate: float) -> None:
        if self._start and share < HARDLY_ANY:
            logger.warning(
                f"Training has changed only {share:.2%} of the trained weights, so the model is almost unchanged. An "
                "fp32 weight near 0.02 changes only by steps above 1e-9, one near 1 only by steps above 3e-8. "
                f"Raise learning_rate (now {learning_rate:g}) or train longer."
            )


def _stride(parameter: torch.Tensor) -> int:
    return -(-parameter.numel() // ENTRIES)


def _first_entry(parameter: torch.Tensor) -> int:
    """Returns the index of the first compared entry in this process's part."""
    return -(-local_start(parameter) // _stride(parameter))


def _entries(parameter: torch.Tensor) -> torch.Tensor:
    """Returns the compared entries of this process's part, at their positions in the whole parameter."""
    flat, stride = local_part(parameter.detach()).flatten(), _stride(parameter)
    return flat[_first_entry(parameter) * stride - local_start(parameter) :: stride]
