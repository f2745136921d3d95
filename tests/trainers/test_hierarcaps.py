"""HierarCaps' training: its loss on texts of rows, what is frozen, negatives, evaluation, resuming. 4 seconds."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from datasets import Dataset, IterableDataset
from transformers import AutoModel, AutoProcessor

from hfcomp.losses import radial_entailment_loss
from hfcomp.modeling import encode_texts
from hfcomp.trainers.hierarcaps import HierarCapsTrainer
from tests import tolerances
from tests.trainers import runs
from tests.trainers.runs import arguments, batch_of, history, loss_and_gradients, weights

TWO = {"chain_columns": ["level_1", "caption"]}
SETTINGS = {"entailment_weight": 1.0, "hardest_weight": 1.0, "pullback_weight": 10.0}


@functools.cache
def read(folder):
    return AutoModel.from_pretrained(folder), AutoProcessor.from_pretrained(folder)


def build(model, *args, **settings):
    """Builds as in `runs`, but reads a folder once."""
    settings["processing_class"] = read(model)[1]
    return runs.build(HierarCapsTrainer, copy.deepcopy(read(model)[0]), *args, **settings)


@pytest.fixture(scope="module")
def rows():
    """Chains of four, but for a row without its third text; without images."""
    colors, shapes = ("red", "blue", "green"), ("cube", "ball", "cone", "ring")
    listed = [
        {
            "level_4": "a cube or a ball" if number % 4 < 2 else "a cone or a ring",
            "level_3": f"a {shapes[number % 4]}",
            "level_2": "" if number == 3 else f"a {colors[number % 3]} {shapes[number % 4]}",
            "level_1": f"a {colors[number % 3]} {shapes[number % 4]} on a white star {number}",
            "caption": f"a {colors[number % 3]} {shapes[number % 4]} on a black star {number}",
        }
        for number in range(16)
    ]
    return Dataset.from_list(listed)


def features(model, trainer, texts):
    ids, _ = trainer.data_collator.tokenizer(texts)
    return encode_texts(model, trainer.data_collator.tokenizer.pad(ids, trainer.data_collator.tokenizer.length(ids)))


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_the_loss_is_that_of_chains_their_negatives_and_the_empty_text(name, rows, tmp_path, request):
    folder = request.getfixturevalue(name)
    trainer = build(folder, rows, tmp_path, mini_batch_size={"clip": None, "siglip": 30}[name])
    with torch.no_grad():  # as after some steps
        for parameter in trainer.model.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    loss, gradients = loss_and_gradients(trainer, range(8))
    columns = [rows[f"level_{level}"][:8] for level in (4, 3, 2, 1)]
    chains = [list(texts) for texts in zip(*columns, strict=True)]
    negatives = trainer.train_dataset.column("negative_captions")[:8]
    chains[3] = [*chains[3][:2], chains[3][3], ""]
    negatives[3] = [*negatives[3][:2], negatives[3][3], ""]
    mask = torch.tensor([[bool(text) for text in texts] for texts in chains])
    assert torch.equal(mask, torch.tensor([[bool(text) for text in texts] for texts in negatives]))

    def all_features(model):
        return [features(model, trainer, sum(texts, [])).unflatten(0, (8, 4)) for texts in (chains, negatives)]

    now, start = all_features(trainer.model.backbone), all_features(read(folder)[0])
    root = features(trainer.model.backbone, trainer, [""])[0]
    expected, metrics = radial_entailment_loss(*now, root, *start, mask=mask, negative_mask=mask, **SETTINGS)
    torch.testing.assert_close(loss, expected.detach(), rtol=0, atol=8 * tolerances.angle())
    assert metrics["loss_pullback"] > 1e-3
    weight = next(name for name in gradients if name.endswith("token_embedding.weight"))
    (gradient,) = torch.autograd.grad(expected, trainer.model.get_parameter(weight))
    torch.testing.assert_close(gradients[weight], gradient, rtol=0, atol=tolerances.gradients(gradients)[weight])
    assert not [name for name in gradients if "vision" in name or "visual" in name or "logit" in name]
    trainer.log({"loss": loss.item()})
    line = trainer.state.log_history[-1]
    assert line["loss_hardest"] == pytest.approx(metrics["loss_hardest"].item(), abs=4 * tolerances.angle())
    assert (line["texts_encoded"], line["images_encoded"]) == (8 * 9, 0)


def test_texts_go_straight_on_and_a_plain_model_is_left(clip, rows, tmp_path):
    settings = {"max_steps": 8, "learning_rate": 5e-3, "lr_scheduler_type": "constant"}
    trainer = build(clip, rows, tmp_path, eval_dataset=rows, **settings)
    before, started = weights(trainer), trainer.evaluate()
    trainer.train()
    ended = trainer.evaluate()
    assert ended["eval_angle_entailed"] < started["eval_angle_entailed"] - 0.1
    assert ended["eval_entailment_accuracy"] > max(started["eval_entailment_accuracy"], 0.8)
    assert history(trainer, "accuracy_entailment")[-1] > 0.8 and history(trainer, "changed_weight_fraction")[-1] > 0.2
    moved = {name for name, value in weights(trainer).items() if not torch.equal(value, before[name])}
    assert "backbone.text_projection.weight" in moved
    assert not [name for name in moved if "vision" in name or "visual" in name or "logit" in name]
    trainer.save_model(str(tmp_path / "final"))
    model, info = AutoModel.from_pretrained(tmp_path / "final", output_loading_info=True)
    assert not any(info.values()), info
    assert torch.equal(model.text_projection.weight, trainer.model.backbone.text_projection.weight)


def test_evaluation_is_of_the_whole_set_whatever_the_batches(clip, rows, tmp_path):
    metrics = [
        build(clip, rows, tmp_path, eval_dataset=rows, per_device_eval_batch_size=size).evaluate() for size in (16, 5)
    ]
    for key in ("eval_entailment_accuracy", "eval_angle_entailed", "eval_angle_contradicted"):
        assert metrics[0][key] == pytest.approx(metrics[1][key], rel=0, abs=tolerances.angle())


def test_own_negatives_are_taken_in_the_order_of_the_chain(clip, rows, tmp_path):
    own = rows.add_column("negative_captions", [["no 4", "no 3", "no 2"]] * 16)
    trainer = build(clip, own, tmp_path, negative_source="negative_captions")
    read_texts = trainer.data_collator._chain_texts(trainer.train_dataset[3], 3)
    chain = [rows[3][column] for column in ("level_4", "level_3", "level_1")]
    assert read_texts == ["", *chain, None, "no 4", "no 3", None, None]
    owner = batch_of(trainer, [0, 3])["concept_image_index"].view(2, 9)
    assert owner.tolist() == [[0, 0, 0, 0, 0, 0, 0, 0, -1], [1, 1, 1, 1, -1, 1, 1, -1, -1]]


def test_a_run_goes_on_from_its_checkpoint_towards_the_same_start(clip, rows, tmp_path):
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant"}
    whole = build(clip, rows, tmp_path, **settings)
    whole.train()
    resumed = build(clip, rows, tmp_path, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    runs.assert_same_weights(weights(resumed), weights(whole))
    other = build(clip, rows, tmp_path, **settings)
    other.start.backbone.text_projection.weight.data.neg_()
    with pytest.raises(ValueError, match="different model"):
        other.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))


# What is told and refused


def test_names_of_levels_are_told(clip, rows, tmp_path, caplog):
    build(clip, rows, tmp_path, **TWO)
    assert "texts of level_1: " in caplog.text
    caplog.clear()
    fewer = rows.map(lambda row, index: {"level_2": "" if index < 4 else row["level_2"]}, with_indices=True)
    build(clip, fewer, tmp_path, chain_columns=["level_2", "caption"])
    assert "4 of 16 rows have no text" in caplog.text


def test_what_makes_no_triplet_is_refused(clip, rows, tmp_path):
    with pytest.raises(ValueError, match="HierarCapsTrainer .*column 'level_2'"):
        build(clip, rows.remove_columns("level_2"), tmp_path)
    with pytest.raises(ValueError, match="none of the 16 rows .*texts"):
        build(clip, rows.remove_columns("level_1").add_column("level_1", ["one"] * 16), tmp_path, **TWO)
    with pytest.raises(ValueError, match="dataset is streamed"):
        stream = IterableDataset.from_generator(lambda: iter(rows), features=rows.features)
        build(clip, stream, tmp_path)
    long = rows.add_column("negative_captions", [["one"] * 5] * 16)
    trainer = build(clip, long, tmp_path, negative_source="negative_captions")
    with pytest.raises(ValueError, match="'negative_captions', row 2: .* 4 strings"):
        batch_of(trainer, [2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chain_columns": ["level_1"]}, "two different .*level_4"),
        ({"chain_columns": ["level_1", "level_5"]}, "at least two"),
        ({"negative_source": "others"}, "siblings, negative_captions"),
        ({"pullback_weight": -1.0}, "pullback_weight: found -1.0,.* 0"),
        ({"freeze_towers": ["text"]}, "freeze_towers .*'text'"),
    ],
)
def test_a_config_that_cannot_work_is_refused(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        arguments(HierarCapsTrainer, tmp_path, **settings)
