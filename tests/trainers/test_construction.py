"""What a trainer checks before its first step: precision, config, weights that were frozen, the model's device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import new_class
from typing import Protocol

import pytest
import torch
from transformers import AutoProcessor, CLIPModel, TrainingArguments

from hfcomp.modeling import DualEncoder
from hfcomp.trainers.cement import CementConfig, CementTrainer
from hfcomp.trainers.info_nce import InfoNCEConfig, InfoNCETrainer
from hfcomp.trainers.weight_average import WeightAverage
from tests import tiny


def test_a_half_precision_checkpoint_is_trained_in_single_precision(tmp_path):
    """In bfloat16 a step of 1e-6 would leave almost every weight where it was."""
    folder = tiny.clip(tmp_path / "half", dtype=torch.bfloat16)
    trainer = InfoNCETrainer(folder, InfoNCEConfig(output_dir=str(tmp_path / "out"), use_cpu=True))
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}


def test_float16_weights_of_a_module_are_refused_with_the_way_out(clip, tmp_path):
    model = CLIPModel.from_pretrained(clip).half()
    with pytest.raises(ValueError, match=r"float16.*model.float\(\)"):
        InfoNCETrainer(
            model,
            InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True),
            processing_class=AutoProcessor.from_pretrained(clip),
        )


class Counts(Protocol):
    def count(self) -> int: ...


class Mixin:
    """What a user shares between trainers, with a constructor of its own."""

    counted = 2

    def count(self) -> int:
        return self.counted


class Abstract(ABC):
    @abstractmethod
    def count(self) -> int: ...


@pytest.mark.parametrize("bases", [(CementTrainer, Mixin), (Mixin, CementTrainer), (CementTrainer, Counts)])
def test_a_trainer_has_further_parents(bases, clip, tmp_path):
    trainer_class = type("MyTrainer", bases, {"count": lambda self: 3})
    trainer = trainer_class(clip, CementConfig(output_dir=str(tmp_path), use_cpu=True))
    assert trainer.count() == 3 and isinstance(trainer, bases)


def test_a_trainer_a_config_a_callback_and_a_model_may_be_abstract():
    for parent in (CementTrainer, CementConfig, WeightAverage, DualEncoder):
        made = new_class("Own", (parent, Abstract))
        assert made.__abstractmethods__ == {"count"}


@pytest.mark.parametrize("args", [TrainingArguments, InfoNCEConfig])
def test_the_config_of_another_trainer_is_refused_by_name(clip, tmp_path, args):
    with pytest.raises(TypeError, match=f"CementTrainer .*CementConfig, .*{args.__name__}"):
        CementTrainer(clip, args(output_dir=str(tmp_path), use_cpu=True))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_logit_scale", 0.5, "expected at least 1"),
        ("mini_batch_size", 0, "expected at least 1"),
        ("freeze_towers", ["vision"], "'image' and 'text'"),
        ("accelerator_config", {"even_batches": False}, "Keep the defaults"),
    ],
)
def test_a_config_that_cannot_work_is_refused(tmp_path, field, value, message):
    with pytest.raises(ValueError, match=message):
        InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True, **{field: value})


def test_weights_that_were_frozen_before_are_told(clip, tmp_path, caplog):
    model = CLIPModel.from_pretrained(clip)
    model.vision_model.requires_grad_(False)
    processor = AutoProcessor.from_pretrained(clip)
    InfoNCETrainer(model, InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True), processing_class=processor)
    assert "stay frozen: vision_model" in caplog.text


def test_an_encoder_lives_where_its_backbone_does(clip):
    """A model that is on its GPU already is a common input; `meta` stands for a device that is not the CPU."""
    model = CLIPModel.from_pretrained(clip).to("meta")
    state = {"value": torch.nn.Identity(), "weight": torch.nn.Linear(1, 1)}
    encoder = DualEncoder(model, state)
    assert encoder.device.type == "meta"
    assert {tensor.device.type for tensor in (*encoder.parameters(), *encoder.buffers())} == {"meta"}
    assert all(value.device.type == "meta" for value in encoder._dummy_inputs().values() if value.dtype == torch.long)


@pytest.mark.parametrize("half", ["bf16", "fp16"])
def test_half_precision_without_a_gpu_has_to_be_asked_for(half, tmp_path):
    with pytest.raises(ValueError, match=f"{half}=True, .*--use_cpu true.*--{half} false"):
        InfoNCEConfig(output_dir=str(tmp_path), **{half: True})


def test_bf16_on_the_cpu_may_be_asked_for(tmp_path):
    assert InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True, bf16=True).device.type == "cpu"
    assert InfoNCEConfig(output_dir=str(tmp_path)).device.type == "cpu"
