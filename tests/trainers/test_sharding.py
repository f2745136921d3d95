"""What FSDP is refused with, and the state of an optimizer that is split and joined. 2 seconds."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from accelerate.utils import FullyShardedDataParallelPlugin
from torch import nn

from hfcomp.modeling import DualEncoder, load_backbone
from hfcomp.trainers._support.fsdp_checks import check_plugin, shard_unit_names, uses_fsdp
from hfcomp.trainers._support.sharded_weights import SplitOptimizer, replicated_parameters
from hfcomp.trainers.info_nce import InfoNCEConfig, InfoNCETrainer
from tests import families
from tests.recipes.accelerate_files import needs_fsdp
from tests.trainers.own_objective import Offset

PLUGIN = {"fsdp_version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cpu_offload": True}, "fsdp_offload_params .*false"),
        ({"activation_checkpointing": True}, "fsdp_activation_checkpointing .*gradient_checkpointing .*true"),
        ({"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 10}, "SIZE_BASED_WRAP .*TRANSFORMER_BASED_WRAP"),
        pytest.param({"ignored_modules": "backbone.text_model"}, "fsdp_ignored_modules", marks=needs_fsdp),
        ({"fsdp_version": 1}, "fsdp_version=1 .*fsdp_version .*2"),
    ],
)
def test_settings_of_fsdp_that_cannot_work_are_refused_by_name(settings, message):
    check_plugin(FullyShardedDataParallelPlugin(**PLUGIN))
    with pytest.raises(ValueError, match=message):
        check_plugin(FullyShardedDataParallelPlugin(**PLUGIN | settings))


@pytest.mark.follows("hfcomp/trainers/_support/fsdp_checks.py", "Install it, or remove fsdp.")
@pytest.mark.parametrize("package", [torch, transformers])
def test_versions_that_would_shard_scalars_are_refused(package, tmp_path, monkeypatch):
    for each in (torch, transformers):
        monkeypatch.setattr(each, "__version__", "2.6.0" if each is package else "9")
    with pytest.raises(ValueError, match=rf"fsdp: found {package.__name__} 2\.6\.0, expected .* or newer"):
        InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True, fsdp=True)
    InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True)


@needs_fsdp
def test_loading_on_one_process_is_refused_before_a_model_is_loaded(tmp_path, monkeypatch):
    settings = {"fsdp": True, "fsdp_config": {"fsdp_cpu_ram_efficient_loading": True}}
    with pytest.raises(ValueError, match="fsdp_cpu_ram_efficient_loading .*whole model"):
        InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True, **settings)
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "true")
    config = InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True)
    assert not uses_fsdp(config)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert uses_fsdp(config)
    with pytest.raises(ValueError, match="fsdp_cpu_ram_efficient_loading"):
        InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True)


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("clip", ["CLIPEncoderLayer", "CLIPTextEmbeddings", "CLIPVisionEmbeddings"]),
        (
            "siglip",
            [
                "SiglipEncoderLayer",
                "SiglipMultiheadAttentionPoolingHead",
                "SiglipTextEmbeddings",
                "SiglipVisionEmbeddings",
            ],
        ),
    ],
)
def test_units_and_whole_parameters_are_those_of_the_model(name, units, request):
    model = DualEncoder(load_backbone(request.getfixturevalue(name)), {"offset": Offset()})
    assert shard_unit_names(model) == units
    whole = {id(parameter) for parameter in replicated_parameters(model)}
    names = {key for key, parameter in model.named_parameters() if id(parameter) in whole}
    scalars = {"backbone.logit_scale", "objective_state.offset.value"}
    assert names == scalars | ({"backbone.logit_bias"} if name == "siglip" else set())


@pytest.mark.parametrize(
    ("name", "units"), [("flava", ["FlavaLayer"]), ("groupvit", ["GroupViTEncoderLayer", "GroupViTStage"])]
)
def test_a_family_that_names_no_unit_is_split_into_its_layers(name, units, tmp_path):
    model = DualEncoder(load_backbone(families.write_family(tmp_path, name)))
    assert not model.plain._no_split_modules
    assert shard_unit_names(model) == units


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.ParameterDict({"scale": torch.ones(()), "weight": torch.rand(3, 2), "bias": torch.rand(3)})


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    groups = [
        {"params": [model["weight"]], "weight_decay": 0.1},
        {"params": [model["scale"], model["bias"]], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.1)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    for value in model.values():
        value.grad = torch.full_like(value, float(number))
    optimizer.step()


def test_a_split_optimizer_writes_and_reads_the_state_of_a_whole_one():
    model, whole = module(), module()
    optimizer, expected = optimizer_of(model), optimizer_of(whole)
    split = SplitOptimizer(optimizer, model, [model["scale"]])
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1, 1]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0, 0.0]
    for number in (1, 2):
        step(model, optimizer, number), step(whole, expected, number)
    state = split.whole_state(optimizer, model, kept=True)
    assert state["param_groups"] == expected.state_dict()["param_groups"]
    for number, entries in expected.state_dict()["state"].items():
        assert all(torch.equal(state["state"][number][key], value) for key, value in entries.items())
    assert split.whole_state(optimizer, model, kept=False)["state"] == {}
    # another one goes on from it as the whole one does
    other = copy.deepcopy(model)
    again = optimizer_of(other)
    SplitOptimizer(again, other, [other["scale"]]).load(again, other, copy.deepcopy(expected.state_dict()))
    step(other, again, 3), step(whole, expected, 3)
    assert all(torch.equal(other[name], whole[name]) for name in other)


def test_a_scheduler_has_a_rate_for_each_split_group():
    model = module()
    optimizer = optimizer_of(model)
    split = SplitOptimizer(optimizer, model, [model["scale"]])
    state = {"base_lrs": [0.1, 0.2, 0.2], "last_epoch": 3, "_last_lr": [1, 2, 2]}
    joined = split.join_groups(state)
    assert joined == {"base_lrs": [0.1, 0.2], "last_epoch": 3, "_last_lr": [1, 2]}
    assert split.spread_groups(joined) == state


def test_a_state_of_other_parameters_is_refused():
    model = module()
    optimizer = optimizer_of(model)
    split = SplitOptimizer(optimizer, model, [model["scale"]])
    stored = {"state": {}, "param_groups": [{"params": [0]}]}
    with pytest.raises(ValueError, match=r"groups of \[1\] parameters.*\[1, 2\]"):
        split.load(optimizer, model, stored)


def test_without_fsdp_a_trainer_has_its_own_model(clip, tmp_path):
    trainer = InfoNCETrainer(clip, InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True))
    assert trainer.whole_model() is trainer.model
