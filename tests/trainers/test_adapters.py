"""`peft=lora` and `peft=dora` in every trainer: what is adapted, what is trained with it, and nothing else. 15 s."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from peft import LoraConfig
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor

from hfcomp import trainers
from hfcomp.modeling import OBJECTIVE_STATE_FILE
from hfcomp.modeling.adapters import TARGETS
from hfcomp.trainers.ahnpl import AHNPLTrainer
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.hierarcaps import HierarCapsTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests.trainers.group_rows import add_groups
from tests.trainers.objectives import BASES, SETTINGS, trainer_class
from tests.trainers.runs import (
    CHECKPOINTING,
    arguments,
    assert_same_gradients,
    assert_same_weights,
    build,
    loss_and_gradients,
    weights,
)

SCALARS = ("logit_scale", "logit_bias")
PREFIX = "backbone.base_model.model."


@pytest.fixture(scope="module")
def rows(pairs):
    """Rows with all columns that objectives read."""
    return add_groups(pairs)


def adapted_modules(trainer) -> dict[str, BaseTunerLayer]:
    modules = trainer.model.named_modules()
    return {name.removeprefix(PREFIX): module for name, module in modules if isinstance(module, BaseTunerLayer)}


def changed_names(before, after) -> set[str]:
    return {name.removeprefix(PREFIX) for name in before if not torch.equal(before[name], after[name])}


def modules_with_an_effect(trainer) -> set[str]:
    """The adapted modules whose output in a training batch is another one without their adapter."""
    calls, modules = {}, adapted_modules(trainer)

    def remember(name):
        def hook(module, args, kwargs, output):
            calls[name] = (args, kwargs, output)

        return modules[name].register_forward_hook(hook, with_kwargs=True)

    hooks = [remember(name) for name in modules]
    with torch.no_grad():
        trainer.compute_loss(trainer.model.train(), next(iter(trainer.get_train_dataloader())))
    for hook in hooks:
        hook.remove()
    names = set()
    for name, (args, kwargs, output) in calls.items():
        modules[name].enable_adapters(False)
        with torch.no_grad():
            without = modules[name](*args, **kwargs)
        modules[name].enable_adapters(True)
        with_adapter, without = (value[0] if isinstance(value, tuple) else value for value in (output, without))
        if not torch.equal(with_adapter, without):
            names.add(name)
    return names


def test_every_trainer_is_among_the_objectives():
    public = {name for name in trainers.__all__ if name.endswith("Trainer")}
    assert public == {*SETTINGS, *BASES}


def each_with_one_of(kinds: list[tuple[str, str]]) -> Iterator:
    """Every objective with one of the kinds in turn; with the others it is slow."""
    for place, name in enumerate(sorted(SETTINGS)):
        for number, kind in enumerate(kinds):
            marks = () if place % len(kinds) == number else pytest.mark.slow
            yield pytest.param(name, *kind, marks=marks)


@pytest.mark.parametrize(("name", "model", "kind"), each_with_one_of([("clip", "lora"), ("siglip", "dora")]))
def test_each_adapted_module_changes_and_nothing_else(name, model, kind, request, rows, tmp_path):
    folder = request.getfixturevalue(model)
    trainer = build(trainer_class(name), folder, rows, tmp_path, peft=kind, lora_rank=2, **SETTINGS[name])
    before = weights(trainer)
    trainer.train()
    own = {name for name in before if ".lora_" in name or name.startswith("objective_state.")}
    scalars = {name for name in SCALARS if name in trainer.required_features}
    assert changed_names(before, weights(trainer)) == {name.removeprefix(PREFIX) for name in own} | scalars

    modules = adapted_modules(trainer)
    towers = ["text"] if name in ("HierarCapsTrainer", "TextAlignmentTrainer") else ["text", "vision"]
    assert len(modules) == 12 * len(towers)  # two layers of six
    assert {module.partition("_")[0] for module in modules} == set(towers)
    assert all(module.lora_B["default"].weight.any() for module in modules.values())
    assert modules_with_an_effect(trainer) == set(modules)

    base = AutoModel.from_pretrained(folder).state_dict()
    kept = {name.replace(".base_layer", ""): value for name, value in weights(trainer).items() if ".lora_" not in name}
    assert all(
        torch.equal(base[name], kept[PREFIX + name]) for name in base if PREFIX + name in kept and name not in SCALARS
    )
    assert len(kept) >= len(base)


@pytest.mark.parametrize("model", ["metaclip2", "siglip2"])
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_the_other_families_have_the_same_adapters(model, kind, request, rows, tmp_path):
    trainer = build(CementTrainer, request.getfixturevalue(model), rows, tmp_path, peft=kind)
    before = weights(trainer)
    trainer.train()
    expected = {name.removeprefix(PREFIX) for name in before if ".lora_" in name} | {"logit_scale"}
    assert changed_names(before, weights(trainer)) == expected
    assert len(modules_with_an_effect(trainer)) == 24


@pytest.mark.parametrize(
    ("model", "targets", "expected"),
    [
        ("clip", ["head"], {"visual_projection", "text_projection"}),
        ("siglip", ["head"], {"text_model.head", "vision_model.head.mlp.fc1", "vision_model.head.mlp.fc2"}),
        ("siglip", ["pooling"], {"vision_model.head.attention"}),
        ("siglip", ["head.attention", "text_model.head"], {"vision_model.head.attention", "text_model.head"}),
        ("siglip", [r"vision_model.*layers\.1\.mlp\.fc1"], {"vision_model.encoder.layers.1.mlp.fc1"}),
        (
            "clip",
            ["layers.0.self_attn.out_proj"],
            {f"{tower}_model.encoder.layers.0.self_attn.out_proj" for tower in ("text", "vision")},
        ),
        (
            "clip",
            ["patch_embedding", "token_embedding"],
            {"vision_model.embeddings.patch_embedding", "text_model.embeddings.token_embedding"},
        ),
    ],
)
def test_targets_are_what_they_name(model, targets, expected, request, rows, tmp_path):
    trainer = build(InfoNCETrainer, request.getfixturevalue(model), rows, tmp_path, peft="lora", lora_targets=targets)
    assert set(adapted_modules(trainer)) == expected
    before = weights(trainer)
    trainer.train()
    moved = changed_names(before, weights(trainer))
    own = {name for name in moved if "lora_" not in name}
    assert own == ({"logit_scale"} if model == "clip" else set(SCALARS))
    assert modules_with_an_effect(trainer) == expected


def test_the_pooling_of_siglip_leaves_its_base_as_it_is(siglip, rows, tmp_path):
    """PEFT's own layer for nn.MultiheadAttention adds the adapter to the weights and takes it away, which rounds."""
    how = {"peft": "lora", "lora_targets": ["pooling", "attention"], "max_steps": 4}
    trainer = build(InfoNCETrainer, siglip, rows, tmp_path, **how)
    trainer.train()
    base = AutoModel.from_pretrained(siglip).vision_model.head.attention
    own = trainer.model.plain.vision_model.head.attention.get_base_layer()
    assert torch.equal(own.in_proj_weight, base.in_proj_weight)
    assert torch.equal(own.out_proj.weight, base.out_proj.weight)


def test_the_adapter_begins_as_the_model_it_is_of_whatever_was_drawn_before(clip, rows, tmp_path):
    plain, _ = loss_and_gradients(build(InfoNCETrainer, clip, rows, tmp_path), range(8))
    runs = []
    for _ in range(2):
        torch.rand(7)
        trainer = build(InfoNCETrainer, clip, rows, tmp_path, peft="lora")
        loss, _ = loss_and_gradients(trainer, range(8))
        assert torch.equal(loss, plain)
        runs.append(weights(trainer))
    assert_same_weights(*runs)


def test_rank_alpha_dropout_and_kind_reach_the_adapter(clip, rows, tmp_path):
    how = {"peft": "dora", "lora_rank": 3, "lora_alpha": 12.0, "lora_dropout": 0.25}
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, **how)
    for module in adapted_modules(trainer).values():
        assert module.lora_A["default"].weight.shape[0] == 3
        assert module.scaling["default"] == 4
        assert module.lora_dropout["default"].p == 0.25
        assert module.use_dora["default"]
    assert build(InfoNCETrainer, clip, rows, tmp_path, peft="lora").model.backbone.active_peft_config.lora_alpha == 32


def test_a_frozen_tower_has_no_adapter(clip, rows, tmp_path):
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, peft="lora", freeze_towers=["image"])
    assert {name.partition(".")[0] for name in adapted_modules(trainer)} == {"text_model"}
    before = weights(trainer)
    trainer.train()
    assert all(
        name == "logit_scale" or name.startswith("text_model.") for name in changed_names(before, weights(trainer))
    )


@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("settings", [{"mini_batch_size": 3}, {CHECKPOINTING: True}])
def test_recomputed_activations_give_the_same_gradients(settings, kind, siglip, rows, tmp_path):
    how = {"peft": kind, "lora_targets": ["attention", "pooling"] if kind == "lora" else ["attention", "head"]}
    plain = build(CementTrainer, siglip, rows, tmp_path, **how)
    other = build(CementTrainer, siglip, rows, tmp_path, **how, **settings)
    if CHECKPOINTING in settings:
        getattr(other.model, f"{CHECKPOINTING}_enable")()
    loss, expected = loss_and_gradients(plain, range(8))
    again, actual = loss_and_gradients(other, range(8))
    assert_same_gradients(actual, expected)
    assert abs(loss - again) < 1e-5


def test_bf16_keeps_the_adapter_in_single_precision(siglip, rows, tmp_path):
    how = {"peft": "lora", "bf16": True, "lora_targets": ["attention", "pooling"], "mini_batch_size": 3}
    trainer = build(InfoNCETrainer, siglip, rows, tmp_path, **how)
    before = weights(trainer)
    trainer.train()
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert {name for name in changed_names(before, weights(trainer)) if "lora_" not in name} == set(SCALARS)


@pytest.mark.parametrize(
    ("name", "model", "settings"),
    [
        ("AHNPLTrainer", "clip", {"peft": "lora", "lora_dropout": 0.1}),
        ("CEClipTrainer", "siglip", {"peft": "dora"}),
        ("C2LIPTrainer", "siglip", {"peft": "lora", "lora_targets": ["attention", "pooling", "head"]}),
        ("ClearGlassTrainer", "clip", {"peft": "dora", "lora_dropout": 0.1}),
    ],
)
def test_a_resumed_run_equals_one_that_was_never_stopped(name, model, settings, request, rows, tmp_path):
    def trainer():
        run = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1, **SETTINGS[name], **settings}
        return build(trainer_class(name), request.getfixturevalue(model), rows, tmp_path, **run)

    whole = trainer()
    whole.train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert_same_weights(weights(resumed), weights(whole))
    assert all(torch.equal(*pair) for pair in zip(resumed.model.buffers(), whole.model.buffers(), strict=True))


def test_scale_and_learned_state_are_saved_and_trained_on(siglip, rows, tmp_path):
    first = build(AHNPLTrainer, siglip, rows, tmp_path / "first", peft="lora", num_negatives=2)
    first.train()
    first.save_model(str(tmp_path / "one"))
    state = load_file(tmp_path / "one" / OBJECTIVE_STATE_FILE)
    learned = {f"objective_state.{name}" for name in first.model.objective_state.state_dict()}
    assert set(state) == {"backbone.base_model.model.logit_scale"} | learned
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer_config.json"} <= names
    assert "model.safetensors" not in names

    second = build(InfoNCETrainer, tmp_path / "one", rows, tmp_path / "second")
    assert torch.equal(second.model.plain.logit_scale, first.model.plain.logit_scale)
    second.train()
    assert not torch.equal(second.model.plain.logit_scale, first.model.plain.logit_scale)


# The Python argument


def test_a_config_of_peft_may_be_given(clip, rows, tmp_path):
    config = LoraConfig(r=3, target_modules=["q_proj", "fc2"])
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, peft_config=config)
    assert len(adapted_modules(trainer)) == 8
    before = weights(trainer)
    trainer.train()
    assert "logit_scale" in changed_names(before, weights(trainer))
    assert config.base_model_name_or_path is None  # the user's own object stays as it is


def test_one_without_targets_adapts_the_layers_of_both_encoders(siglip, rows, tmp_path):
    trainer = build(InfoNCETrainer, siglip, rows, tmp_path, peft_config=LoraConfig(r=2))
    assert len(adapted_modules(trainer)) == 24


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peft": "ia3"}, "peft: found 'ia3'.* lora, dora"),
        ({"lora_rank": 4}, "lora_rank: .*peft=lora"),
        ({"lora_targets": ["mlp"], "lora_alpha": 1.0}, "lora_alpha, lora_targets: "),
        ({"peft": "lora", "lora_rank": 0}, "lora_rank: found 0,.* 1"),
        ({"peft": "lora", "lora_alpha": 0.0}, "lora_alpha: found 0.0,.* 0"),
        ({"peft": "lora", "lora_dropout": 1.0}, "lora_dropout: found 1.0,.* 0 .* 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(InfoNCETrainer, tmp_path, **settings)


IDLE = r"matches vision_model\.head\.attention\.out_proj, where an adapter has no effect"


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("siglip", {"lora_targets": ["out_proj"]}, IDLE),
        ("clip", {"lora_targets": ["q_prj"]}, r"CLIPModel .*'q_prj'.*'q_proj'"),
        ("clip", {"lora_targets": ["pooling"]}, r"CLIPModel .*'pooling'.* attention"),
        ("clip", {"lora_targets": ["("]}, r"'\(' .*regular expression"),
        ("clip", {"lora_targets": ["visual_projection"], "freeze_towers": ["image"]}, "towers .*frozen"),
        ("siglip", {"peft": "dora", "lora_targets": ["pooling"]}, "in_proj_weight .*DoRA"),
        ("siglip", {"lora_dropout": 0.1, "lora_targets": ["pooling"]}, r"dropout \(0.1\)"),
        ("clip", {"peft_config": LoraConfig(r=2, target_modules=["q_proj"])}, "peft='lora' and peft_config both"),
    ],
)
def test_targets_without_modules_or_effect_are_refused_by_name(model, settings, message, request, rows, tmp_path):
    with pytest.raises(ValueError, match=message):
        build(InfoNCETrainer, request.getfixturevalue(model), rows, tmp_path, **{"peft": "lora", **settings})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (LoraConfig(target_modules=["q_proj", "out_proj"]), r"vision_model\.head\.attention\.out_proj .*no effect"),
        (LoraConfig(target_modules=["q_proj", "v_prj"]), "target_modules .*'v_prj'.*'v_proj'"),
        (LoraConfig(target_modules=["q_proj"], modules_to_save=["logit_scale"]), "modules_to_save .*'logit_scale'"),
    ],
)
def test_a_config_of_peft_with_targets_that_have_no_effect_is_refused(config, message, siglip, rows, tmp_path):
    with pytest.raises(ValueError, match=message):
        build(InfoNCETrainer, siglip, rows, tmp_path, peft_config=config)


def test_a_tower_that_the_objective_does_not_use_is_not_adapted_by_name(clip, rows, tmp_path):
    how = {"chain_columns": ["generalized_caption", "caption"], "peft": "lora", "freeze_towers": None}
    with pytest.raises(ValueError, match="towers .*frozen"):
        build(HierarCapsTrainer, clip, rows, tmp_path, **how, lora_targets=["visual_projection"])


def test_an_adapter_on_an_adapter_is_refused(clip, rows, tmp_path):
    build(InfoNCETrainer, clip, rows, tmp_path, peft="lora").save_model(str(tmp_path / "adapter"))
    with pytest.raises(ValueError, match=r"already an adapter.*hfcomp\.merge_adapter"):
        build(InfoNCETrainer, tmp_path / "adapter", rows, tmp_path, peft="lora")


def test_a_model_that_still_has_the_layers_of_an_adapter_is_refused(clip, rows, tmp_path):
    model, processor = AutoModel.from_pretrained(clip), AutoProcessor.from_pretrained(clip)
    build(InfoNCETrainer, model, rows, tmp_path, peft="lora", processing_class=processor)
    with pytest.raises(ValueError, match="adapter layers"):
        build(InfoNCETrainer, model, rows, tmp_path)


def test_how_much_is_trained_is_printed(clip, rows, tmp_path, capsys):
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, peft="lora", lora_rank=1, lora_targets=["q_proj"])
    trained = 4 * (32 + 32) + 1
    trainer.train()
    whole = sum(parameter.numel() for parameter in trainer.model.parameters())
    assert f"4 modules: {trained:,} of {whole:,} weights" in capsys.readouterr().out
    assert set(TARGETS) == {"attention", "mlp", "head", "pooling"}


@pytest.mark.parametrize(("rate", "lines"), [(1e-6, 1), (1e-5, 0)])
def test_a_learning_rate_for_whole_models_is_reported(rate, lines, clip, rows, tmp_path, capsys):
    build(InfoNCETrainer, clip, rows, tmp_path, peft="lora", learning_rate=rate, max_steps=1).train()
    assert capsys.readouterr().out.count("learning_rate=1e-06") == lines
