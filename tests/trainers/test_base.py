"""What every trainer does: the same gradients in mini-batches, exact resume, checks at the start, logging."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoProcessor, TrainingArguments

from hfcomp.data.collators import CompositionalCollator
from hfcomp.losses import info_nce_loss
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny, tolerances
from tests.trainers.own_objective import Offset, OwnTrainer
from tests.trainers.runs import (
    arguments,
    assert_same_gradients,
    assert_same_weights,
    batch_of,
    build,
    history,
    loss_and_gradients,
    weights,
)


class EverythingTrainer(CompositionalTrainer):
    """A loss in which every field has a weight of its own."""

    required_features = (
        "image_embeds",
        "text_embeds",
        "negative_image_embeds",
        "negative_text_embeds",
        "concept_embeds",
        "negative_image_mask",
        "negative_text_mask",
        "concept_image_index",
        "logit_scale",
        "learned",
    )

    def objective_state(self, args):
        return {"offset": Offset()}

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        f = self.gather_features(model, inputs)
        parts = (
            f.image_embeds,
            f.text_embeds,
            f.negative_image_embeds,
            f.negative_text_embeds.flatten(0, 1),
            f.concept_embeds,
        )
        loss = info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale)[0] + f.learned["offset"] ** 2
        for place, part in enumerate(parts):
            weight = torch.arange(part.numel(), dtype=part.dtype).view_as(part).mul(1.7 + place).sin()
            loss = loss + (part * weight).sum()
        return self.reduce_loss(loss, {}, f, return_outputs)


CASES = {
    "plain": (InfoNCETrainer, {}),
    "negatives": (InfoNCETrainer, {"num_negatives": 2}),
    "cement": (CementTrainer, {}),
    "own": (OwnTrainer, {"num_negatives": 2}),
    "everything": (EverythingTrainer, {"num_negatives": 2, "max_concepts": 2}),
}
ON_MODELS = [("clip", name) for name in CASES] + [("siglip", name) for name in ("plain", "cement", "everything")]


# Mini-batches


@pytest.mark.parametrize(
    ("model", "case", "size"),
    [*((model, case, 3) for model, case in ON_MODELS), ("clip", "everything", 1), ("siglip", "cement", 50)],
)
def test_mini_batches_have_the_loss_and_gradients_of_the_whole_batch(model, case, size, request, pairs, tmp_path):
    folder = request.getfixturevalue(model)
    trainer_class, settings = CASES[case]
    results = []
    for mini_batch_size in (None, size):
        # in float64, so that nothing but rounding at 1e-16 can differ
        backbone = AutoModel.from_pretrained(folder, dtype=torch.float64)
        trainer = build(trainer_class, backbone, pairs, tmp_path, mini_batch_size=mini_batch_size, **settings)
        results.append(loss_and_gradients(trainer, range(10)))
    (whole, expected), (loss, gradients) = results
    torch.testing.assert_close(loss, whole, rtol=0, atol=tolerances.loss(dtype=torch.float64))
    assert len(gradients) > 70
    assert_same_gradients(gradients, expected)


def test_mini_batches_in_single_precision(clip, pairs, tmp_path):
    whole = loss_and_gradients(build(CementTrainer, clip, pairs, tmp_path), range(10))
    parts = loss_and_gradients(build(CementTrainer, clip, pairs, tmp_path, mini_batch_size=3), range(10))
    torch.testing.assert_close(parts[0], whole[0], rtol=0, atol=tolerances.loss())
    assert_same_gradients(parts[1], whole[1])


@pytest.mark.parametrize("case", ["cement", "everything"])
def test_with_dropout_recomputed_mini_batches_equal_kept_ones_bit_for_bit(
    case, clip_with_dropout, pairs, tmp_path, monkeypatch
):
    trainer_class, settings = CASES[case]
    trainer = build(trainer_class, clip_with_dropout, pairs, tmp_path, mini_batch_size=3, **settings)
    calls = []

    def direct(function, *inputs, **settings):
        calls.append(inputs)
        return function(*inputs)

    def run(seed):
        torch.manual_seed(seed)
        return loss_and_gradients(trainer, range(10))

    recomputed = run(0)
    monkeypatch.setattr("hfcomp.modeling.encoder.checkpoint", direct)
    kept, other = run(0), run(1)
    assert len(calls) >= 8
    assert torch.equal(recomputed[0], kept[0])
    assert not torch.equal(kept[0], other[0])  # dropout is on
    for name, gradient in recomputed[1].items():
        assert torch.equal(gradient, kept[1][name]), name


# Resume


@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("negatives", {}),
        ("cement", {"mini_batch_size": 3}),
        ("own", {"mini_batch_size": 5, "gradient_accumulation_steps": 2}),
    ],
)
def test_a_resumed_run_equals_one_that_was_never_stopped(case, settings, clip_with_dropout, pairs, tmp_path):
    trainer_class, own = CASES[case]

    def trainer():
        # 5 batches of 4 rows to an epoch: neither the save at step 3 nor step 8 is an epoch's end
        settings_of_run = {"max_steps": 8, "save_strategy": "steps", "save_steps": 3, "per_device_train_batch_size": 4}
        run = settings_of_run | {"max_grad_norm": 0.5, "warmup_steps": 2} | own | settings
        return build(trainer_class, clip_with_dropout, pairs, tmp_path, **run)

    whole = trainer()
    start = weights(whole)
    whole.train()
    assert not torch.equal(start["backbone.logit_scale"], weights(whole)["backbone.logit_scale"])
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    assert resumed.state.global_step == 8
    assert_same_weights(weights(resumed), weights(whole))
    for name in ("loss", "grad_norm", "learning_rate", "logit_scale", "epoch"):
        assert history(resumed, name)[-5:] == history(whole, name)[-5:], name
    if case == "own":
        assert weights(whole)["objective_state.offset.value"] != 0.5


def test_a_resumed_run_counts_every_step_though_its_checkpoint_lies_between_two_lines(clip, pairs, tmp_path):
    def count_encoded(trainer) -> float:
        return sum(line.get("images_encoded", 0) for line in trainer.state.log_history)

    run = {"max_steps": 5, "logging_steps": 4, "save_strategy": "steps", "save_steps": 3}
    whole = build(InfoNCETrainer, clip, pairs, tmp_path, **run)
    whole.train()
    resumed = build(InfoNCETrainer, clip, pairs, tmp_path, **run)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    assert count_encoded(resumed) == count_encoded(whole) == 5 * whole.args.train_batch_size


def test_the_last_checkpoint_is_found_by_itself(clip, pairs, tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 1}
    build(InfoNCETrainer, clip, pairs, tmp_path, max_steps=2, **settings).train()
    longer = build(InfoNCETrainer, clip, pairs, tmp_path, max_steps=3, **settings)
    longer.train(resume_from_checkpoint=True)
    assert history(longer, "step")[-1] == 3
    assert len(history(longer, "loss")) == 3


# Gradient accumulation


def test_accumulation_takes_the_mean_of_its_batches_once(clip, pairs, tmp_path):
    settings = {"train_sampling_strategy": "sequential", "optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0}
    settings |= {"lr_scheduler_type": "constant", "per_device_train_batch_size": 5}
    reference = build(InfoNCETrainer, clip, pairs, tmp_path, **settings)
    parts = [loss_and_gradients(reference, range(start, start + 5)) for start in range(0, 20, 5)]
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, gradient_accumulation_steps=4, max_steps=1, **settings)
    before = weights(trainer)
    trainer.train()
    assert history(trainer, "loss")[0] == pytest.approx(
        sum(loss.item() for loss, _ in parts) / 4, abs=tolerances.loss()
    )
    after = weights(trainer)
    means = {name: sum(gradients[name] for _, gradients in parts) / 4 for name in before}
    allowed = tolerances.gradients(means)
    for name, mean in means.items():
        atol = 0.1 * allowed[name] + before[name].abs().max().item() * tolerances.rounding(1)
        torch.testing.assert_close(before[name] - after[name], 0.1 * mean, rtol=0, atol=atol)
    # counts are totals over the four batches, metrics means over them
    assert history(trainer, "texts_encoded") == [20]


def with_key(clip, name, value):
    own = CompositionalCollator(AutoProcessor.from_pretrained(clip), AutoModel.from_pretrained(clip).config)
    return lambda rows: own(rows) | {name: value}


@pytest.mark.parametrize("key", ["labels", "rows", "tokens", "text_embeds", "return_loss"])
def test_a_reserved_key_of_a_collator_is_refused(key, clip, pairs, tmp_path):
    # with `labels` the stock Trainer would leave out the division by the number of accumulation steps
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, data_collator=with_key(clip, key, torch.zeros(8)))
    with pytest.raises(ValueError, match=f"reserved key '{key}'"):
        trainer.train()


def test_an_unknown_key_of_a_collator_is_refused_and_the_nearest_named(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, data_collator=with_key(clip, "input_idx", torch.zeros(8)))
    with pytest.raises(ValueError, match=r"'input_idx', .*'input_ids'"):
        trainer.train()


def test_a_collator_without_row_is_refused(clip, pairs, tmp_path):
    own = with_key(clip, "tiny", torch.zeros(8))

    def without(rows):
        batch = own(rows)
        del batch["row"]
        return batch

    with pytest.raises(ValueError, match="returned no 'row'"):
        build(InfoNCETrainer, clip, pairs, tmp_path, data_collator=without).train()


class WeightedTrainer(InfoNCETrainer):
    """Reads a key of its own collator."""

    extra_batch_keys = ("weight",)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return super().compute_loss(model, inputs, return_outputs) * inputs["weight"].mean()


def test_a_key_of_extra_batch_keys_reaches_the_loss(clip, pairs, tmp_path):
    settings = {"max_steps": 1, "train_sampling_strategy": "sequential"}
    plain = build(InfoNCETrainer, clip, pairs, tmp_path, **settings)
    plain.train()
    weight = with_key(clip, "weight", torch.full((8,), 3.0))
    weighted = build(WeightedTrainer, clip, pairs, tmp_path, data_collator=weight, **settings)
    weighted.train()
    assert history(weighted, "loss")[0] == pytest.approx(
        3 * history(plain, "loss")[0], rel=0, abs=3 * tolerances.loss()
    )


@pytest.mark.parametrize("key", ["row", "pixels", "labels"])
def test_extra_batch_keys_may_not_take_our_names(key, clip, pairs, tmp_path):
    clash = type("ClashTrainer", (InfoNCETrainer,), {"extra_batch_keys": ("weight", key)})
    with pytest.raises(ValueError, match=rf"ClashTrainer\.extra_batch_keys .*\['{key}'\]"):
        build(clash, clip, pairs, tmp_path)


# Parameters


@pytest.mark.parametrize("model", ["clip", "siglip"])
@pytest.mark.parametrize("tower", ["image", "text"])
def test_a_frozen_tower_stays_as_it_is(model, tower, request, pairs, tmp_path):
    trainer = build(InfoNCETrainer, request.getfixturevalue(model), pairs, tmp_path, freeze_towers=[tower])
    before = weights(trainer)
    trainer.train()
    after = weights(trainer)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    parts = {"image": ("vision_model", "visual_projection"), "text": ("text_model", "text_projection")}
    frozen, other = parts[tower], parts["text" if tower == "image" else "image"]
    assert not [name for name in moved if name.split(".")[1] in frozen]
    assert [name for name in moved if name.split(".")[1] in other]
    assert "backbone.logit_scale" in moved


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"freeze_towers": ["vision"]}, r"freeze_towers.*'vision'.*'image' and 'text'"),
        ({"mini_batch_size": 0}, "mini_batch_size: found 0,.* 1"),
        ({"remove_unused_columns": True}, "remove_unused_columns .*false"),
        ({"logging_nan_inf_filter": True}, "logging_nan_inf_filter .*false"),
    ],
)
def test_a_wrong_setting_is_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(InfoNCETrainer, tmp_path, **settings)


@pytest.mark.parametrize(
    ("model", "maximum", "expected"),
    [
        ("clip", None, 100.0),
        ("clip", 20.0, 20.0),
        ("clip", math.inf, None),
        ("siglip", None, None),
        ("siglip", 20.0, 20.0),
    ],
)
def test_the_logit_scale_is_clamped_for_clip_and_free_for_siglip(model, maximum, expected, request, pairs, tmp_path):
    backbone = AutoModel.from_pretrained(request.getfixturevalue(model))
    with torch.no_grad():
        backbone.logit_scale.fill_(math.log(200))
    trainer = build(InfoNCETrainer, backbone, pairs, tmp_path, max_logit_scale=maximum, max_steps=1)
    trainer.train()
    scale = backbone.logit_scale.exp().item()
    # the scale is kept as its logarithm, up to 4.6
    assert scale == pytest.approx(expected, rel=4.6 * tolerances.rounding(2)) if expected else scale > 190


def test_a_frozen_logit_scale_is_not_clamped(clip, pairs, tmp_path):
    backbone = AutoModel.from_pretrained(clip)
    with torch.no_grad():
        backbone.logit_scale.fill_(math.log(200))
    backbone.logit_scale.requires_grad_(False)
    build(InfoNCETrainer, backbone, pairs, tmp_path, max_steps=1).train()
    assert backbone.logit_scale.item() == pytest.approx(math.log(200))


@pytest.mark.parametrize("model", ["clip", "siglip"])
def test_scalars_and_vectors_have_no_weight_decay(model, request, pairs, tmp_path):
    folder = request.getfixturevalue(model)
    trainer = build(OwnTrainer, folder, pairs, tmp_path, weight_decay=0.1, num_negatives=2)
    trainer.create_optimizer()
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    groups = {group["weight_decay"]: group["params"] for group in trainer.optimizer.param_groups}
    assert set(groups) == {0.1, 0.0}
    assert all(parameter.ndim >= 2 for parameter in groups[0.1])
    assert all(parameter.ndim < 2 for parameter in groups[0.0])
    without = {names[id(parameter)] for parameter in groups[0.0]}
    assert {"backbone.logit_scale", "objective_state.offset.value"} <= without
    assert any("layer_norm" in name for name in without)
    trainable = sum(parameter.requires_grad for parameter in trainer.model.parameters())
    assert len(groups[0.1]) + len(groups[0.0]) == trainable


def test_bf16_autocast_leaves_the_loss_in_fp32(clip, pairs, tmp_path, monkeypatch):
    seen = []

    def watch_loss(image, text, **settings):
        loss, metrics = info_nce_loss(image, text, **settings)
        with torch.autocast("cpu", enabled=False):
            again = info_nce_loss(image.detach(), text.detach(), **settings)[0]
        seen.append((image.dtype, settings["logit_scale"].dtype, loss.dtype, torch.equal(loss, again)))
        return loss, metrics

    monkeypatch.setattr("hfcomp.trainers.info_nce.info_nce_loss", watch_loss)
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, bf16=True, mini_batch_size=3)
    types = set()
    trainer.model.backbone.visual_projection.register_forward_hook(lambda *args: types.add(args[2].dtype))
    before = weights(trainer)
    trainer.train()
    assert types == {torch.bfloat16}
    assert seen == [(torch.float32, torch.float32, torch.float32, True)] * 2
    assert all(parameter.dtype == torch.float32 for parameter in trainer.model.parameters())
    assert not torch.equal(before["backbone.logit_scale"], trainer.model.plain.logit_scale)


def test_unused_parameters_are_frozen_and_named(siglip, pairs, tmp_path, caplog):
    trainer = build(CementTrainer, siglip, pairs, tmp_path)
    assert "freezes weights that it does not use: backbone.logit_bias\n" in caplog.text
    assert not trainer.model.plain.logit_bias.requires_grad


@pytest.mark.parametrize(
    ("model", "case"),
    [*(("clip", case) for case in CASES), ("siglip", "plain"), ("siglip", "cement"), ("siglip2", "plain")],
)
def test_training_lowers_the_loss_of_a_batch(model, case, request, pairs, tmp_path):
    trainer_class, settings = CASES[case]
    run = {"max_steps": 6, "learning_rate": 3e-3, "lr_scheduler_type": "constant"}
    trainer = build(trainer_class, request.getfixturevalue(model), pairs.select(range(8)), tmp_path, **run, **settings)
    trainer.train()
    loss = history(trainer, "loss")
    assert loss[-1] < loss[0]


# Evaluation

RECALLS = {"eval_image_to_text_recall@1", "eval_text_to_image_recall@1"}
CHOICE = {"eval_caption_choice", "eval_caption_choice_ties"}
TIMES = {"eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "eval_model_preparation_time"}


@pytest.mark.parametrize(("case", "choice"), [("plain", set()), ("negatives", CHOICE), ("cement", CHOICE)])
def test_evaluation_loses_no_row_and_reports_its_keys(case, choice, clip, pairs, tmp_path):
    trainer_class, settings = CASES[case]
    seen = []

    def compute_metrics(prediction):
        seen.append(prediction.predictions)
        return {}

    trainer = build(trainer_class, clip, pairs, tmp_path, eval_dataset=pairs, **settings)
    assert trainer.args.dataloader_drop_last
    metrics = trainer.evaluate()
    assert set(metrics) - TIMES - {"epoch"} == {"eval_loss"} | RECALLS | choice
    assert trainer.args.dataloader_drop_last
    trainer.compute_metrics = compute_metrics
    trainer.evaluate()
    image, text, *negatives = seen[0]
    assert image.shape == text.shape == (20, 16)
    batch = batch_of(trainer, range(20))
    trainer.model.eval()
    expected = trainer.gather_features(trainer.model, batch)
    np.testing.assert_allclose(image, expected.image_embeds.detach(), atol=tolerances.embedding())
    np.testing.assert_allclose(text, expected.text_embeds.detach(), atol=tolerances.embedding())
    assert [part.shape[0] for part in negatives] == [20] * len(negatives)
    assert len(negatives) == (2 if choice else 0)


def test_evaluation_does_not_count_as_training(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, eval_dataset=pairs, eval_strategy="steps", eval_steps=1)
    trainer.train()
    assert history(trainer, "images_encoded") == [8, 8]
    assert len(history(trainer, "eval_loss")) == 2


def test_several_evaluation_sets_have_a_name_each(clip, pairs, tmp_path):
    sets = {"one": pairs, "two": pairs.select(range(5))}
    metrics = build(InfoNCETrainer, clip, pairs, tmp_path, eval_dataset=sets).evaluate()
    assert {"eval_one_loss", "eval_two_loss", "eval_two_text_to_image_recall@1"} <= set(metrics)


def test_another_set_with_its_own_column_names_is_evaluated_and_predicted(clip, pairs, tmp_path):
    other = pairs.rename_columns({"caption": "text", "image": "picture"})
    names = {"caption": "text", "image": "picture"}
    trainer = build(InfoNCETrainer, clip, other, tmp_path, column_names=names)
    expected = build(InfoNCETrainer, clip, pairs, tmp_path, eval_dataset=pairs).evaluate()
    assert trainer.evaluate(other)["eval_loss"] == pytest.approx(expected["eval_loss"])
    image, text = trainer.predict(other).predictions
    assert image.shape == text.shape == (20, 16)
    with pytest.raises(ValueError, match="column_names .*'caption' to 'text'"):
        trainer.evaluate(pairs)


def test_an_evaluation_without_batch_sized_sets_works(clip, pairs, tmp_path):
    assert "eval_loss" in build(InfoNCETrainer, clip, pairs, tmp_path, eval_dataset=pairs.select([0])).evaluate()


# Checks at the start


def test_a_set_smaller_than_a_batch_is_refused(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs.select(range(7)), tmp_path)
    with pytest.raises(ValueError, match=r"7 rows, .* 8 .*per_device_train_batch_size"):
        trainer.train()


def test_rows_left_out_of_an_epoch_are_counted(clip, pairs, tmp_path, caplog):
    build(InfoNCETrainer, clip, pairs, tmp_path, max_steps=1).train()
    assert "4 of 20 rows" in caplog.text


def test_the_smaller_last_batch_can_be_kept(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, max_steps=3, dataloader_drop_last=False)
    trainer.train()
    assert history(trainer, "images_encoded") == [8, 8, 4]


def test_a_missing_column_is_named_at_the_start(clip, pairs, tmp_path):
    without = pairs.remove_columns("caption")
    with pytest.raises(ValueError, match="InfoNCETrainer .*column 'caption'.* has: .*'image_id'"):
        build(InfoNCETrainer, clip, without, tmp_path)
    with pytest.raises(ValueError, match="needs .*column 'caption'"):
        build(InfoNCETrainer, clip, pairs, tmp_path, eval_dataset={"one": without})
    with pytest.raises(ValueError, match="CementTrainer .*column 'negative_captions'"):
        build(CementTrainer, clip, pairs.remove_columns("negative_captions"), tmp_path)


def test_columns_go_by_the_names_of_the_recipe(clip, pairs, tmp_path):
    renamed = pairs.rename_column("caption", "text")
    trainer = build(InfoNCETrainer, clip, renamed, tmp_path, column_names='{"caption": "text"}')
    assert trainer.train_dataset[3]["caption"] == pairs[3]["caption"]


def test_two_gpus_in_one_process_are_refused_with_the_command(clip, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda self: 2))
    with pytest.raises(ValueError, match="accelerate launch --num_processes 2 .*CUDA_VISIBLE_DEVICES=0"):
        build(InfoNCETrainer, clip, pairs, tmp_path)


def test_a_stream_trains_and_a_resumed_run_goes_on_where_it_was(clip_with_dropout, pairs, tmp_path):
    """Also in its second pass; the buffer's order is that of an unbroken run."""

    def trainer():
        saved = {"max_steps": 8, "save_strategy": "steps", "save_steps": 5, "shuffle_buffer": 7}
        return build(InfoNCETrainer, clip_with_dropout, pairs.to_iterable_dataset(), tmp_path, **saved)

    whole = trainer()
    whole.train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-5"))
    assert_same_weights(weights(resumed), weights(whole))


def test_streams_are_for_training_with_a_number_of_steps(clip, pairs, tmp_path):
    stream = pairs.to_iterable_dataset()
    with pytest.raises(ValueError, match="max_steps"):
        build(InfoNCETrainer, clip, stream, tmp_path, max_steps=-1)
    with pytest.raises(TypeError, match="evaluation .*streamed"):
        build(InfoNCETrainer, clip, pairs, tmp_path, eval_dataset=stream).evaluate()
    with pytest.raises(ValueError, match="declare its columns"):
        build(InfoNCETrainer, clip, stream.map(lambda row: row), tmp_path)


def test_negatives_that_the_objective_does_not_read_are_refused(siglip, pairs, tmp_path):
    with pytest.raises(ValueError, match="num_negatives=2: .*sigmoid=False"):
        build(InfoNCETrainer, siglip, pairs, tmp_path, num_negatives=2)
    with pytest.raises(ValueError, match="max_concepts=1.*InfoNCETrainer.*'concept_embeds'"):
        build(InfoNCETrainer, siglip, pairs, tmp_path, max_concepts=1)


def test_negatives_that_the_objective_needs_are_asked_for(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="OwnTrainer .*num_negatives .* 1.* 0"):
        build(OwnTrainer, clip, pairs, tmp_path)


def test_the_sigmoid_loss_needs_a_bias(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="sigmoid=True .*logit_bias"):
        build(InfoNCETrainer, clip, pairs, tmp_path, sigmoid=True)


def test_the_processor_comes_from_the_models_folder(clip, pairs, tmp_path):
    for model in (clip, str(clip), AutoModel.from_pretrained(clip)):
        trainer = build(InfoNCETrainer, model, pairs, tmp_path)
        assert type(trainer.processing_class).__name__ == "CLIPProcessor"
    nameless = type(trainer.model.plain)(trainer.model.plain.config)
    nameless.config._name_or_path = nameless.name_or_path = ""
    with pytest.raises(ValueError, match="name_or_path.*processing_class=AutoProcessor"):
        build(InfoNCETrainer, nameless, pairs, tmp_path)
    build(InfoNCETrainer, nameless, pairs, tmp_path, processing_class=AutoProcessor.from_pretrained(clip))


def test_another_models_processor_is_refused(clip, siglip, pairs, tmp_path):
    other = AutoProcessor.from_pretrained(clip)
    other.tokenizer.eos_token = other.tokenizer.convert_ids_to_tokens(5)
    with pytest.raises(ValueError, match="token 1, .*token 5"):
        build(InfoNCETrainer, clip, pairs, tmp_path, processing_class=other)


# Cement's columns


def test_a_margin_from_concreteness_needs_the_ratings(clip, pairs, tmp_path):
    unrated = pairs.remove_columns("negative_concreteness")
    for margin in ("adaptive", "inverse"):
        with pytest.raises(ValueError, match="CementTrainer .*column 'negative_concreteness'"):
            build(CementTrainer, clip, unrated, tmp_path, margin=margin)
    for margin in ("static", "none"):
        trainer = build(CementTrainer, clip, unrated, tmp_path, margin=margin)
        trainer.train()
        assert history(trainer, "margin") == [1.0 if margin == "static" else 0.0] * 2


def test_a_set_without_negative_images_is_told_and_trains_where_that_is_allowed(clip, pairs, tmp_path, caplog):
    allowed = {"allow_missing_negative_images": True}
    trainer = build(CementTrainer, clip, pairs.remove_columns("negative_image"), tmp_path, **allowed)
    assert "no negative_image" in caplog.text
    trainer.train()
    assert history(trainer, "images_encoded") == [8, 8]


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"margin": "dynamic"}, "margin: found 'dynamic',.* adaptive"), ({"num_negatives": 2}, "exactly 1")],
)
def test_cements_own_settings_are_checked(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(CementTrainer, tmp_path, **settings)


# The log


def test_a_line_of_the_log_sums_counts_and_takes_means_of_metrics(clip, pairs, tmp_path):
    each = build(CementTrainer, clip, pairs, tmp_path, max_steps=4)
    each.train()
    both = build(CementTrainer, clip, pairs, tmp_path, max_steps=4, logging_steps=2)
    both.train()
    for name in ("images_encoded", "texts_encoded"):
        values = history(each, name)
        assert history(both, name) == [sum(values[:2]), sum(values[2:])]
    for name in ("margin", "loss_image_to_text", "hard_negative_accuracy_text_to_image"):
        values = history(each, name)
        assert history(both, name) == pytest.approx(
            [sum(values[:2]) / 2, sum(values[2:]) / 2], rel=tolerances.rounding(4)
        )
    # values that are the same on every process are those of the last step
    assert history(both, "logit_scale") == history(each, "logit_scale")[1::2]
    assert len(history(both, "loss")) == 2


def test_learned_values_are_logged_by_name(clip, pairs, tmp_path):
    trainer = build(OwnTrainer, clip, pairs, tmp_path, num_negatives=2)
    trainer.train()
    first, second = history(trainer, "offset")
    assert first == 0.5
    assert second != 0.5


def test_cut_concepts_and_truncated_texts_are_counted(clip, tmp_path):
    dataset = tiny.pairs(8, ragged=False).map(
        lambda row, index: {"concepts": ["a", "b", "c"][: 1 + index % 3], "caption": "a red cube " * (index + 1)},
        with_indices=True,
    )
    trainer = build(EverythingTrainer, clip, dataset, tmp_path, max_steps=1, num_negatives=2, max_concepts=1)
    trainer.train()
    assert history(trainer, "cut_concepts") == [0 + 1 + 2 + 0 + 1 + 2 + 0 + 1]
    cut = sum(trainer.data_collator.tokenizer([row["caption"]])[1][0] for row in dataset)
    assert cut > 0
    assert history(trainer, "truncated_text_share") == [cut / history(trainer, "texts_encoded")[0]]
    assert not history(trainer, "tiny_images")
