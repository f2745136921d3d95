"""What is built on transformers and accelerate beyond their documented interface, one test each."""

from __future__ import annotations

import inspect
import json
from types import SimpleNamespace

import pytest
import torch
import transformers
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType
from packaging.version import Version
from torch import nn
from torch.utils.data import Sampler
from transformers import Trainer
from transformers.trainer_utils import HubStrategy

from hfcomp.trainers._support import transformers_internals as internals
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests.trainers.runs import arguments, build

PRIVATE = {
    "_load_from_checkpoint",
    "_load_best_model",
    "_save_optimizer_and_scheduler",
    "_load_optimizer_and_scheduler",
}


def overrides() -> set[str]:
    """Methods of transformers' Trainer that a class between it and an objective replaces, the constructor aside."""
    between = CompositionalTrainer.__mro__[: CompositionalTrainer.__mro__.index(Trainer)]
    replaced = {name for kind in between for name in vars(kind) if callable(getattr(Trainer, name, None))}
    return {name for name in replaced if not name.startswith("__")}


def test_few_methods_of_the_trainer_are_replaced_and_no_private_one_that_has_a_public_hook():
    assert len(overrides()) <= 12, sorted(overrides())
    # checkpoints hold plain models, and of a sharded run what one process would write: transformers has no hook
    assert {name for name in overrides() if name.startswith("_")} == PRIVATE


@pytest.mark.parametrize("name", sorted(PRIVATE))
def test_private_methods_are_called_as_transformers_declares_them(name):
    ours, theirs = (inspect.signature(getattr(kind, name)) for kind in (internals.AdaptedTrainer, Trainer))
    assert [*ours.parameters] == [*theirs.parameters]
    assert f"self.{name}(" in inspect.getsource(Trainer)


def test_the_batch_size_is_that_of_the_search_for_one(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path)
    assert internals.train_batch_size(trainer) == trainer.args.train_batch_size == 8
    if hasattr(trainer, "_update_auto_batch_size"):
        trainer._update_auto_batch_size(4)
    else:  # before transformers 5.3, which sets it directly
        assert "self._train_batch_size = " in inspect.getsource(Trainer._inner_training_loop)
        trainer._train_batch_size = 4
    assert internals.train_batch_size(trainer) == 4 and trainer.args.train_batch_size == 8


class Backwards(Sampler):
    """An order that accelerate does not know."""

    def __init__(self, rows):
        self.rows, self.epoch = rows, 0

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        return iter(reversed(range(len(self.rows))))

    def set_epoch(self, epoch):
        self.epoch = epoch


def test_a_loader_has_the_settings_of_the_config_and_tells_its_sampler_the_epoch(clip, pairs, tmp_path):
    settings = {"dataloader_num_workers": 1, "dataloader_prefetch_factor": 3, "dataloader_persistent_workers": True}
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, **settings)
    order = Backwards(pairs)
    parts = {"batch_size": 5, "collate": list}
    loader = internals.prepare_loader(trainer, range(len(pairs)), sampler=order, is_training=True, **parts)
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (1, 3, True)
    assert loader.worker_init_fn.keywords == {"num_workers": 1, "rank": 0}
    assert len(loader) == len(pairs) // 5 and loader.batch_sampler.drop_last
    internals.set_loader_sampler(loader)
    loader.set_epoch(3)
    assert order.epoch == 3
    whole = internals.prepare_loader(trainer, range(len(pairs)), **parts)
    assert len(whole) == -(-len(pairs) // 5) and whole.worker_init_fn is None


def test_the_repeats_of_a_last_batch_are_known(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path)
    assert internals.rows_of_last_batch(trainer.accelerator) == 0
    loader = internals.prepare_loader(trainer, range(7), batch_size=4, collate=list)
    assert [internals.rows_of_last_batch(trainer.accelerator) for _ in loader] == [0, 3]


def test_a_model_that_was_evaluated_is_prepared_again(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, eval_dataset=pairs)
    trainer.evaluate()
    if not hasattr(trainer.model, "_is_accelerate_prepared"):
        pytest.skip("this accelerate does not mark a bare model")
    assert trainer.model._is_accelerate_prepared
    trainer.create_optimizer()
    assert not trainer.model._is_accelerate_prepared


def test_accelerate_compiles_nothing(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path)
    internals.compile_nothing(trainer.accelerator)
    model = nn.Linear(1, 1)
    assert trainer.accelerator.prepare_model(model) is model


def test_every_batch_is_reduced(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path)
    settings = trainer.accelerator.gradient_state.plugin_kwargs
    internals.reduce_every_batch(trainer.accelerator)
    try:
        assert settings.pop("sync_each_batch")
        if Version(transformers.__version__) < Version("5.2"):
            pytest.skip("transformers before 5.2 does not read it, and holds whole gradients until the last batch")
        assert 'plugin_kwargs.get("sync_each_batch"' in inspect.getsource(Trainer)
    finally:
        settings.pop("sync_each_batch", None)


def test_accelerate_shards_on_cpus(monkeypatch):
    for state in (PartialState, AcceleratorState):
        monkeypatch.setattr(state, "_shared_state", dict(state._shared_state))
    accelerator = Accelerator(cpu=True)
    trainer = SimpleNamespace(accelerator=accelerator, args=SimpleNamespace(fsdp_plugin_args={"fsdp_version": 2}))
    internals.shard_on_cpus(trainer)
    assert trainer.is_fsdp_enabled and accelerator.distributed_type == DistributedType.FSDP
    assert accelerator.state.fsdp_plugin.fsdp_version == 2


def test_transformers_pushes_no_checkpoint_and_the_config_of_the_user_stays(tmp_path):
    args = arguments(InfoNCETrainer, tmp_path, hub_strategy="checkpoint")
    assert internals.without_checkpoint_pushes(args).hub_strategy == HubStrategy.END
    assert args.hub_strategy == HubStrategy.CHECKPOINT
    assert "self.args.hub_strategy == HubStrategy.END" in inspect.getsource(Trainer._push_from_checkpoint)


def test_a_command_line_gives_columns_as_json(tmp_path):
    names = {"caption": "text"}
    assert arguments(InfoNCETrainer, tmp_path, column_names=json.dumps(names)).column_names == names
    assert set(internals.JSON_FIELDS) < set(InfoNCETrainer.config_class._VALID_DICT_FIELDS)


def test_trackers_are_those_of_report_to():
    assert {"tensorboard", "wandb", "trackio"} <= set(internals.KNOWN_TRACKERS)


@pytest.mark.follows("hfcomp/trainers/_support/sampling.py", "Use 'random', 'sequential' or 'group_by_length'.")
@pytest.mark.parametrize("strategy", ["random", "sequential", "group_by_length"])
def test_an_order_of_another_kind_is_refused(strategy, clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path)
    trainer.args.train_sampling_strategy = "batch_rebalance"
    with pytest.raises(ValueError, match="train_sampling_strategy='batch_rebalance' .*'random'"):
        trainer.get_train_dataloader()
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, train_sampling_strategy=strategy)
    assert torch.is_tensor(next(iter(trainer.get_train_dataloader()))["row"])
