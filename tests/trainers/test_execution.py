"""Compiled towers, attention backends and half precision: the same step, within rounding."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from torch._dynamo.utils import counters
from transformers import CLIPModel

from hfcomp.fields import Features
from hfcomp.trainers._support import model_setup
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.info_nce import InfoNCEConfig, InfoNCETrainer
from tests import tolerances
from tests.trainers import objectives
from tests.trainers.group_rows import add_groups
from tests.trainers.runs import assert_same_gradients, batch_of, build, loss_and_gradients, weights

EAGER = {"torch_compile": True, "torch_compile_backend": "eager"}


@pytest.fixture(scope="module")
def varied_pairs(pairs):
    """Captions of several lengths, so that batches of 4 have too."""
    texts = [" ".join(text.split()[: 2 + row % 6]) for row, text in enumerate(pairs["caption"])]
    return pairs.remove_columns("caption").add_column("caption", texts)


# Compiled towers


@pytest.fixture(scope="module")
def compiled_run(clip, varied_pairs, tmp_path_factory):
    """A run of two epochs with compiled towers, graphs after each epoch, and the same run without."""
    folder = tmp_path_factory.mktemp("compiled")
    run = {"max_steps": 10, "per_device_train_batch_size": 4, "learning_rate": 1e-4, "adam_epsilon": 1e-3}
    plain = build(InfoNCETrainer, clip, varied_pairs, folder / "plain", pad_to_multiple_of=8, **run)
    plain.train()
    counters.clear()
    trainer = build(InfoNCETrainer, clip, varied_pairs, folder, save_strategy="steps", save_steps=5, **EAGER, **run)
    graphs = []
    step = trainer.training_step

    def count_calls(*args, **kwargs):
        loss = step(*args, **kwargs)
        graphs.append(counters["stats"]["unique_graphs"])
        return loss

    trainer.training_step = count_calls
    trainer.train()
    return SimpleNamespace(trainer=trainer, plain=plain, graphs=graphs, folder=folder / "run")


def test_after_the_first_epoch_nothing_is_compiled(compiled_run):
    assert len(compiled_run.graphs) == 10
    assert compiled_run.graphs[0] >= 2
    assert compiled_run.graphs[4] == compiled_run.graphs[-1] <= 6
    assert not counters["graph_break"]


def test_a_compiled_run_trains_the_same(compiled_run):
    expected, actual = weights(compiled_run.plain), weights(compiled_run.trainer)
    for name, weight in expected.items():
        allowed = tolerances.adam(tolerances.gradient(), weight.abs().max().item(), steps=10, rate=1e-4, epsilon=1e-3)
        assert (actual[name] - weight).abs().max().item() <= allowed, name
    moved = weights(build(InfoNCETrainer, compiled_run.plain.model.backbone.name_or_path, None, compiled_run.folder))
    assert any(not torch.equal(moved[name], weight) for name, weight in actual.items())


def test_a_checkpoint_of_compiled_towers_is_a_plain_model(compiled_run):
    for folder in (compiled_run.folder / "checkpoint-5", compiled_run.folder / "checkpoint-10"):
        with safe_open(folder / "model.safetensors", "pt") as file:
            assert not [name for name in file.keys() if "_orig_mod" in name]  # noqa: SIM118
        assert isinstance(CLIPModel.from_pretrained(folder), CLIPModel)
        assert "attn_implementation" not in json.loads((folder / "config.json").read_text())


def test_accelerate_does_not_compile_the_whole_model(compiled_run):
    assert compiled_run.trainer.model_wrapped is compiled_run.trainer.model
    assert type(compiled_run.trainer.model).__name__ == "DualEncoder"


@pytest.mark.parametrize(("settings", "multiple"), [({}, 1), (EAGER, 8), (EAGER | {"pad_to_multiple_of": 4}, 4)])
def test_texts_of_compiled_towers_have_few_lengths(settings, multiple, clip, varied_pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, varied_pairs, tmp_path, **settings)
    lengths = {batch_of(trainer, [row])["input_ids"].shape[1] for row in range(20)}
    own = {len(trainer.data_collator.tokenizer([text])[0][0]) for text in varied_pairs["caption"]}
    limit = trainer.data_collator.tokenizer.max_length
    assert lengths == {min(-(-length // multiple) * multiple, limit) for length in own}
    assert len(lengths) < len(own) or multiple == 1


def test_more_padding_changes_no_clip(clip, varied_pairs, tmp_path):
    short = loss_and_gradients(build(InfoNCETrainer, clip, varied_pairs, tmp_path), range(4))
    long = loss_and_gradients(build(InfoNCETrainer, clip, varied_pairs, tmp_path, pad_to_multiple_of=24), range(4))
    torch.testing.assert_close(long[0], short[0], rtol=0, atol=tolerances.loss())
    assert_same_gradients(long[1], short[1])


@pytest.mark.slow
def test_towers_compiled_by_inductor_have_the_same_gradients(clip, pairs, tmp_path):
    plain = loss_and_gradients(build(CementTrainer, clip, pairs, tmp_path, pad_to_multiple_of=8), range(8))
    compiled = loss_and_gradients(build(CementTrainer, clip, pairs, tmp_path, torch_compile=True), range(8))
    torch.testing.assert_close(compiled[0], plain[0], rtol=0, atol=tolerances.loss())
    assert_same_gradients(compiled[1], plain[1])


# Attention


@pytest.mark.parametrize("model", ["clip", "siglip"])
def test_attention_backends_have_the_same_gradients(model, pairs, tmp_path, request):
    results = {}
    for name in ("sdpa", "eager"):
        trainer = build(CementTrainer, request.getfixturevalue(model), pairs, tmp_path, attn_implementation=name)
        config = trainer.model.plain.config
        assert {part._attn_implementation for part in (config.text_config, config.vision_config)} == {name}
        results[name] = loss_and_gradients(trainer, range(8))
    torch.testing.assert_close(results["eager"][0], results["sdpa"][0], rtol=0, atol=tolerances.loss())
    assert_same_gradients(results["eager"][1], results["sdpa"][1])


def test_the_attention_of_an_adapter_is_chosen_too(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, attn_implementation="eager", peft="lora")
    assert trainer.model.plain.config.text_config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attn_implementation": "someone/kernel"}, "sdpa, eager, flash_attention_2"),
        ({"attn_implementation": "flash_attention_2"}, "pip install flash-attn.*'sdpa'"),
        ({"pad_to_multiple_of": 0}, "pad_to_multiple_of: found 0,.* 1"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True, **settings)


def test_flash_attention_needs_half_precision(tmp_path, monkeypatch):
    monkeypatch.setattr(model_setup, "is_flash_attn_2_available", lambda: True)
    flash = {"output_dir": str(tmp_path), "use_cpu": True, "attn_implementation": "flash_attention_2"}
    with pytest.raises(ValueError, match="set bf16=True"):
        InfoNCEConfig(**flash)
    assert InfoNCEConfig(**flash, bf16=True).attn_implementation == "flash_attention_2"


# Half precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", objectives.SETTINGS)
def test_losses_are_single_precision_under_autocast(name, dtype, clip, pairs, tmp_path, monkeypatch):
    """The loss of features that half-precision towers gave is bit for bit that of fp32 arithmetic on them."""
    settings = objectives.SETTINGS[name]
    trainer = build(objectives.trainer_class(name), clip, add_groups(pairs), tmp_path, **settings)
    trainer.model.train()
    batch = next(iter(trainer.get_train_dataloader()))
    gathered = []
    gather = trainer.gather_features
    monkeypatch.setattr(trainer, "gather_features", lambda *args: gathered.append(gather(*args)) or gathered[-1])
    with torch.autocast("cpu", dtype=dtype):
        loss = trainer.compute_loss(trainer.model, dict(batch))
    floating = {
        key: value.dtype
        for key, value in gathered[0].items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    assert set(floating.values()) == {torch.float32}, floating
    assert loss.dtype == torch.float32
    assert not torch.equal(gathered[0].text_embeds, gathered[0].text_embeds.to(dtype).float())  # normalized in fp32
    monkeypatch.setattr(trainer, "gather_features", lambda *args: Features(**gathered[0]))
    torch.testing.assert_close(trainer.compute_loss(trainer.model, dict(batch)), loss, rtol=0, atol=0)


def test_a_bf16_run_is_near_the_single_precision_one(clip, pairs, tmp_path):
    """Embeddings are off by bf16's rounding, which accumulates over the towers; the loss by twice the logits'."""
    run = {"max_steps": 1, "train_sampling_strategy": "sequential"}
    trainers = {half: build(InfoNCETrainer, clip, pairs, tmp_path, bf16=half, **run) for half in (False, True)}
    losses = {}
    for half, trainer in trainers.items():
        trainer.train()
        losses[half] = trainer.state.log_history[0]["loss"]
    assert losses[True] != losses[False]
    allowed = 2 * tolerances.SCALE * tolerances.cosine(torch.bfloat16)
    assert abs(losses[True] - losses[False]) <= allowed
    assert {weight.dtype for weight in weights(trainers[True]).values()} == {torch.float32}
