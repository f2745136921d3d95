"""Short runs of a trainer on a tiny model, and what the tests read off them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from hfcomp.trainers.base import CompositionalTrainer
from tests import tolerances

# before transformers 5.23 it was called otherwise
CHECKPOINTING = "activation" if "activation_checkpointing" in TrainingArguments.__dataclass_fields__ else "gradient"
CHECKPOINTING += "_checkpointing"


def arguments(trainer_class: type[CompositionalTrainer], folder: Path, **settings: Any) -> Any:
    defaults = {
        "output_dir": str(folder / "run"),
        "use_cpu": True,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "warmup_steps": 0,
        "lr_scheduler_type": "linear",
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    return trainer_class.config_class(**{**defaults, **settings})


def build(
    trainer_class: type[CompositionalTrainer], model: Any, dataset: Any, folder: Path, **settings: Any
) -> CompositionalTrainer:
    """A trainer; settings that `TrainingArguments` does not know go to the trainer itself."""
    own = {
        name: settings.pop(name)
        for name in (
            "eval_dataset",
            "processing_class",
            "data_collator",
            "compute_metrics",
            "callbacks",
            "peft_config",
            "replay_dataset",
        )
        if name in settings
    }
    return trainer_class(model, arguments(trainer_class, folder, **settings), train_dataset=dataset, **own)


def weights(trainer: CompositionalTrainer) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}


def assert_same_weights(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    differ = {name: (first[name] - second[name]).abs().max().item() for name in first}
    assert not {name: value for name, value in differ.items() if value != 0}


def batch_of(trainer: CompositionalTrainer, indices: Any) -> dict[str, Any]:
    return trainer.data_collator(trainer.train_dataset.__getitems__(list(indices)))


def loss_and_gradients(trainer: CompositionalTrainer, indices: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    trainer.model.train()
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, batch_of(trainer, indices))
    loss.backward()
    named = trainer.model.named_parameters()
    return loss.detach(), {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None}


def assert_same_gradients(
    actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], scale: float = tolerances.SCALE
) -> None:
    """The same but for the order of sums."""
    assert actual.keys() == expected.keys()
    allowed = tolerances.gradients(expected, scale)
    for name, gradient in expected.items():
        difference = (actual[name] - gradient).abs().max().item()
        assert difference <= allowed[name], f"{name}: {difference}, allowed {allowed[name]}"


def history(trainer: CompositionalTrainer, name: str) -> list[float]:
    return [line[name] for line in trainer.state.log_history if name in line]


def with_row(dataset: Any, index: int, **columns: Any) -> Any:
    """The dataset with other values in one row."""
    rows = dataset.cast_column("image", type(dataset.features["image"])(decode=False)).to_list()
    rows[index] = rows[index] | columns
    return type(dataset).from_list(rows, features=dataset.features)
