"""A step never waits for the device: it runs on torch's `meta` device, which has no values to wait for.

There `.item()`, `bool()` of a tensor, `nonzero`, indexing by a mask, `unique`, `.cpu()` and `.tolist()` raise, as each
of them needs a value or a size that depends on one. On a GPU they stop the host until all submitted work is done.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from packaging.version import Version
from transformers import TrainingArguments

from hfcomp.trainers.clear_glass import ClearGlassTrainer
from hfcomp.trainers.info_nce import InfoNCEConfig, InfoNCETrainer
from tests.trainers import objectives
from tests.trainers.group_rows import add_groups
from tests.trainers.runs import build

VARIANTS: dict[str, dict[str, Any]] = {
    **objectives.SETTINGS,
    "InfoNCETrainer, negatives": {"num_negatives": 2},
    "C2LIPTrainer, phrases": {"max_concepts": 2, "concept_source": "phrase"},
    "CementTrainer, mini-batches": {"mini_batch_size": 3},
    "TripletClipTrainer, crops": {"random_crop": 0.9, "mini_batch_size": 3},
}
# whose losses are other ones on a model with a bias
ON_SIGLIP = ("InfoNCETrainer", "C2LIPTrainer", "CementTrainer")


class CpuAutocast(torch.autocast):
    """Autocast knows no `meta` device."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if device_type == "meta" else device_type, *args, **kwargs)


@pytest.fixture(scope="module")
def rows(pairs):
    return add_groups(pairs)


def step_on_meta(trainer: Any) -> torch.Tensor:
    """Processes a batch like the Trainer's loop, on the `meta` device."""
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.model.to("meta").train()
    trainer.create_optimizer()
    batch = {name: to_meta(value) for name, value in batch.items()}
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), 1.0)
    trainer.optimizer.step()
    trainer.callback_handler.on_optimizer_step(trainer.args, trainer.state, trainer.control)
    trainer.model.zero_grad()
    return loss


def to_meta(value: Any) -> Any:
    """A tensor, or the pixels of a batch."""
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return type(value)(value.pixels.to("meta"), None if value.boxes is None else value.boxes.to("meta"))


ON_MODELS = [*((name, "clip") for name in VARIANTS), *((name, "siglip") for name in ON_SIGLIP)]


@pytest.mark.parametrize(("name", "model"), ON_MODELS)
def test_a_step_needs_no_value_on_the_host(name, model, rows, request, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "autocast", CpuAutocast)
    trainer_class = objectives.trainer_class(name.partition(",")[0])
    # the fused update of the default does not run on this device
    settings = {"optim": "adamw_torch", **VARIANTS[name]}
    trainer = build(trainer_class, request.getfixturevalue(model), rows, tmp_path, **settings)
    assert step_on_meta(trainer).is_meta


class SyncingTrainer(InfoNCETrainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = super().compute_loss(model, inputs)
        return loss * 2 if loss > 0 else loss


def test_a_step_that_waits_is_found(clip, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "autocast", CpuAutocast)
    with pytest.raises(RuntimeError, match="meta tensors"):
        step_on_meta(build(SyncingTrainer, clip, rows, tmp_path, optim="adamw_torch"))


def test_groups_that_are_ignored_wait_once(clip, rows, tmp_path, monkeypatch):
    """The control `grouping='none'`: its InfoNCE takes the rows that are no repeats, and the host must count them."""
    monkeypatch.setattr(torch, "autocast", CpuAutocast)
    settings = {**objectives.SETTINGS["ClearGlassTrainer"], "grouping": "none", "optim": "adamw_torch"}
    with pytest.raises(RuntimeError, match="meta tensors"):
        step_on_meta(build(ClearGlassTrainer, clip, rows, tmp_path, **settings))


@pytest.mark.skipif(Version(torch.__version__) < Version("2.8"), reason="fused by default from torch 2.8")
def test_the_default_update_is_fused(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path)
    trainer.create_optimizer()
    assert trainer.optimizer.defaults["fused"]


@pytest.mark.parametrize("pinned", [True, False])
def test_copies_from_pinned_memory_do_not_wait(pinned, tmp_path, monkeypatch):
    own = TrainingArguments.__post_init__

    def as_on_a_gpu(self):  # transformers pins nothing for a CPU
        own(self)
        self.dataloader_pin_memory = pinned

    monkeypatch.setattr(TrainingArguments, "__post_init__", as_on_a_gpu)
    assert InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True).accelerator_config.non_blocking is pinned
