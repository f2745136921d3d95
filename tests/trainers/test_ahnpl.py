"""The trainer of AHNPL: margin and thresholds move, are saved, resumed and logged; the source of the shift. 7 s."""

from __future__ import annotations

import math
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModel, CLIPModel

from hfcomp.data.columns import KIND_IDS
from hfcomp.losses import adaptive_threshold, ahnpl_loss, info_nce_loss, multimodal_hard_negative_loss, perturb_image
from hfcomp.modeling import OBJECTIVE_STATE_FILE, encode_texts
from hfcomp.trainers._support.reference_text import FOLDER, PROBE_FILE, WithReferenceText
from hfcomp.trainers.ahnpl import AHNPLConfig, AHNPLTrainer, initial_margin
from hfcomp.trainers.base import CompositionalTrainer
from hfcomp.trainers.hooks import INFO_NCE_FORMS
from tests import tolerances
from tests.trainers.runs import (
    arguments,
    assert_same_gradients,
    assert_same_weights,
    batch_of,
    build,
    history,
    loss_and_gradients,
    weights,
    with_row,
)

KINDS = [KIND_IDS[name] for name in ("swap_att", "replace_obj")]
MARGIN = "objective_state.margin.value"
LIVE = {"shift_source": "live"}
# twice InfoNCE, both halves of the hard negatives, both margins
LOSS = 6 * tolerances.loss()


def ahnpl(model, pairs, folder, **settings) -> CompositionalTrainer:
    """With a margin that is trained, and reference features also in batches that are made by hand."""
    trainer = build(AHNPLTrainer, model, pairs, folder, **{"margin_start": 0.9, **settings})
    if trainer.reference is not None:
        path = trainer.reference.feature_file(trainer.train_dataset)
        trainer.data_collator = WithReferenceText(trainer.data_collator, path)
    return trainer


def thresholds(trainer) -> torch.Tensor:
    return trainer.model.objective_state["threshold"]().clone()


def features_of(trainer, indices=range(8)):
    return trainer.gather_features(trainer.model.eval(), batch_of(trainer, indices))


def negatives_of(f) -> dict[str, torch.Tensor]:
    return {"negative_kind": f.negative_kind, "negative_mask": f.negative_text_mask}


# The margin


def test_the_margin_gets_the_gradient_of_the_pairs_below_it(clip, pairs, tmp_path):
    f = features_of(ahnpl(clip, pairs, tmp_path, **LIVE))
    similarity = (f.image_embeds * f.text_embeds).sum(-1).sort().values
    between = (similarity[2] + similarity[3]).item() / 2
    settings = {"margin_start": between, "margin_minimum": -1.0, "positive_margin_weight": 0.5}
    _, gradients = loss_and_gradients(ahnpl(clip, pairs, tmp_path, **settings), range(8))
    torch.testing.assert_close(gradients[MARGIN], torch.tensor(0.5 * 3 / 8))


def test_training_lowers_the_margin_and_saves_it_beside_a_plain_model(clip, pairs, tmp_path):
    trainer = ahnpl(clip, pairs, tmp_path, max_steps=4, lr_scheduler_type="constant", learning_rate=0.01)
    trainer.train()
    values = history(trainer, "margin")
    # logged as the loss saw it: the start in the first batch
    assert values[0] == pytest.approx(0.9)
    assert values == sorted(values, reverse=True) and len(set(values)) == 4
    trainer.save_model(str(tmp_path / "final"))
    state = load_file(tmp_path / "final" / OBJECTIVE_STATE_FILE)
    assert set(state) == {MARGIN, "objective_state.threshold.value"}
    assert state[MARGIN].item() == trainer.model.objective_state["margin"].value.item() < values[-1]
    assert torch.equal(state["objective_state.threshold.value"], thresholds(trainer))
    _, info = CLIPModel.from_pretrained(tmp_path / "final", output_loading_info=True)
    assert not any(info.values()), info


@pytest.mark.parametrize("start", [0.2, -0.5])
def test_a_margin_that_starts_at_its_floor_stays_there_and_is_told(start, clip, pairs, tmp_path, caplog):
    trainer = ahnpl(clip, pairs, tmp_path, margin_start=start, max_steps=3, learning_rate=0.01)
    assert f"starts at {start:.3f}, at or below its floor (margin_minimum=0.2)" in caplog.text
    assert "58%" in caplog.text
    trainer.train()
    assert history(trainer, "margin") == pytest.approx([0.2] * 3)
    assert trainer.model.objective_state["margin"].value == torch.tensor(start)


@pytest.mark.parametrize("settings", [{"margin_start": 0.21}, {"margin_start": 0.1, "positive_margin_weight": 0.0}])
def test_a_margin_that_is_trained_or_unused_is_not_warned_of(settings, clip, pairs, tmp_path, caplog):
    build(AHNPLTrainer, clip, pairs, tmp_path, **settings)
    assert "floor" not in caplog.text


def test_a_start_that_is_given_wins_over_a_seed(tmp_path, caplog):
    """A recipe's own seed must not stand in the way of --margin_start."""
    assert initial_margin(arguments(AHNPLTrainer, tmp_path, margin_start=0.5, margin_seed=1)) == 0.5
    assert "margin_seed=1 has no effect" in caplog.text


def test_the_start_is_drawn_from_a_seed(tmp_path):
    def start(**settings):
        return initial_margin(arguments(AHNPLTrainer, tmp_path, **settings))

    assert start(margin_start=-0.5, seed=1) == -0.5
    assert start(seed=1) == start(seed=2, margin_seed=1) != start(seed=2)
    drawn = torch.tensor([start(margin_seed=seed) for seed in range(300)])
    assert abs(drawn.mean()) < 0.2 and 0.85 < drawn.std() < 1.15
    state = torch.random.get_rng_state()
    start(seed=5)
    assert torch.equal(torch.random.get_rng_state(), state)


# The thresholds


def test_the_thresholds_of_a_batch_are_used_in_the_next(clip, pairs, tmp_path):
    trainer = ahnpl(clip, pairs, tmp_path, **LIVE)
    f = features_of(trainer)
    given = (f.image_embeds, f.text_embeds, f.negative_text_embeds)
    expected = adaptive_threshold(*given, previous=torch.zeros(len(KIND_IDS)), **negatives_of(f))
    images = perturb_image(*given)
    for used in (torch.zeros(len(KIND_IDS)), expected):
        torch.testing.assert_close(thresholds(trainer), used)
        actual = loss_and_gradients(trainer, range(8))[0]
        loss, _ = ahnpl_loss(
            f.image_embeds,
            f.text_embeds,
            images,
            f.negative_text_embeds,
            logit_scale=f.logit_scale,
            margin=torch.tensor(0.9),
            threshold=used,
            **negatives_of(f),
        )
        torch.testing.assert_close(actual, loss.detach())
    torch.testing.assert_close(thresholds(trainer), expected)
    assert set(expected.nonzero().flatten().tolist()) == set(KINDS)


def test_thresholds_have_no_bounds_and_a_kind_without_a_negative_keeps_its_own(clip, pairs, tmp_path):
    one_kind = pairs.map(lambda row: {"negative_captions": ["", row["caption"]]})
    trainer = ahnpl(clip, one_kind, tmp_path, mask_equal_texts=False, **LIVE)
    start = torch.full((len(KIND_IDS),), -0.7)
    start[KINDS[0]] = 1.3
    trainer.model.objective_state["threshold"].update(start)
    loss_and_gradients(trainer, range(8))
    # an image prefers its caption to the same caption by nothing
    expected = start.clone()
    expected[KINDS[1]] = 0
    torch.testing.assert_close(thresholds(trainer), expected, atol=tolerances.embedding(), rtol=0)


def test_thresholds_go_on_through_epochs(clip, pairs, tmp_path):
    trainer = ahnpl(clip, pairs.select(range(8)), tmp_path, max_steps=3)
    trainer.train()
    assert [line["epoch"] for line in trainer.state.log_history[:3]] == [1, 2, 3]
    for kind in ("swap_att", "replace_obj"):
        first, *others = history(trainer, f"threshold_{kind}")
        assert first == 0 and len(others) == 2 and all(others)


def test_evaluation_leaves_margin_and_thresholds(clip, pairs, tmp_path):
    sets = {"all": pairs, "few": pairs.select(range(9))}
    trainer = build(AHNPLTrainer, clip, pairs, tmp_path, eval_dataset=sets, margin_start=0.9)
    trainer.train()
    before = thresholds(trainer), weights(trainer)[MARGIN]
    first = trainer.evaluate()
    assert trainer.evaluate()["eval_all_loss"] == first["eval_all_loss"] != first["eval_few_loss"]
    other = trainer.evaluate(pairs.select(range(9)))
    assert other["eval_loss"] == pytest.approx(first["eval_few_loss"])
    assert torch.equal(thresholds(trainer), before[0]) and torch.equal(weights(trainer)[MARGIN], before[1])
    assert len(list((tmp_path / "run" / FOLDER).iterdir())) == 2


# Resume


@pytest.mark.parametrize(
    ("source", "accumulated"), [("live", 2), ("frozen", 1), ("frozen", 2), ("frozen, its file deleted", 1)]
)
def test_a_resumed_run_equals_one_that_was_never_stopped(source, accumulated, clip_with_dropout, pairs, tmp_path):
    def trainer():
        run = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 4}
        run |= {"gradient_accumulation_steps": accumulated, "shift_source": source.partition(",")[0]}
        return build(AHNPLTrainer, clip_with_dropout, pairs, tmp_path, margin_start=0.9, **run)

    whole = trainer()
    whole.train()
    if "deleted" in source:
        shutil.rmtree(tmp_path / "run" / FOLDER)
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert_same_weights(weights(resumed), weights(whole))
    assert torch.equal(thresholds(resumed), thresholds(whole))
    assert len(set(history(whole, "margin"))) == 4
    for name in ("loss", "margin", "threshold_swap_att", "threshold_replace_obj", "loss_visual_negative"):
        assert history(resumed, name)[-2:] == history(whole, name)[-2:], name


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_a_run_is_resumed_with_the_model_that_it_began_with(weight, clip, pairs, tmp_path):
    """The checkpoint as the model would shift the images by the features of a trained text tower, in silence."""
    settings = {"save_strategy": "steps", "save_steps": 2, "multimodal_weight": weight}
    build(AHNPLTrainer, clip, pairs, tmp_path, margin_start=0.9, **settings).train()
    checkpoint = str(tmp_path / "run" / "checkpoint-2")
    assert (tmp_path / "run" / "checkpoint-2" / PROBE_FILE).is_file() is (weight > 0)
    wrong = build(AHNPLTrainer, checkpoint, pairs, tmp_path, margin_start=0.9, max_steps=3, **settings)
    if weight:
        with pytest.raises(ValueError, match="different model.*checkpoint"):
            wrong.train(resume_from_checkpoint=checkpoint)
    else:
        wrong.train(resume_from_checkpoint=checkpoint)
    # a run of its own may begin there
    build(AHNPLTrainer, checkpoint, pairs, tmp_path / "other", margin_start=0.9, **settings).train()


# The shift


def test_frozen_features_stay_those_of_the_model_before_training(clip, pairs, tmp_path):
    trainer = build(AHNPLTrainer, clip, pairs, tmp_path, margin_start=0.9, learning_rate=0.01)
    trainer.train()
    for loader in (trainer.get_train_dataloader(), trainer.get_eval_dataloader(pairs.select(range(3, 7)))):
        batch = next(iter(loader))
        base = AutoModel.from_pretrained(clip)
        with torch.no_grad():
            text, negative = (encode_texts(base, batch[key]) for key in ("input_ids", "negative_input_ids"))
            now = encode_texts(trainer.model.backbone, batch["input_ids"])
        torch.testing.assert_close(batch["reference_text_embeds"], text, atol=tolerances.embedding(), rtol=0)
        mask = batch["negative_text_mask"]
        torch.testing.assert_close(
            batch["reference_negative_text_embeds"][mask], negative, atol=tolerances.embedding(), rtol=0
        )
        assert not mask.all() and not batch["reference_negative_text_embeds"][~mask].any()
        assert (now - text).abs().max() > 0.01
        assert set(batch) >= {"pixels", "row", "negative_kind"}


def test_the_frozen_shift_is_used(clip, pairs, tmp_path):
    """After training it is another than the live one; before, the same."""
    frozen, live = (ahnpl(clip, pairs, tmp_path, shift_source=source) for source in ("frozen", "live"))
    results = [loss_and_gradients(trainer, range(8)) for trainer in (frozen, live)]
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=LOSS)
    assert_same_gradients(results[0][1], results[1][1])
    frozen.train()
    f = features_of(frozen)
    images = perturb_image(f.image_embeds, f.reference_text_embeds, f.reference_negative_text_embeds)
    losses = {}
    for name, negative_image in {
        "frozen": images,
        "live": perturb_image(f.image_embeds, f.text_embeds, f.negative_text_embeds),
    }.items():
        given, mask = (f.image_embeds, f.text_embeds, negative_image, f.negative_text_embeds), f.negative_text_mask
        losses[name] = multimodal_hard_negative_loss(*given, negative_mask=mask)[1]["loss_visual_negative"].item()
    frozen.model.train()
    frozen.step_log.drain()
    frozen.compute_loss(frozen.model, batch_of(frozen, range(8)))
    assert frozen.step_log.drain()["loss_visual_negative"] == pytest.approx(
        losses["frozen"], rel=0, abs=tolerances.loss()
    )
    assert losses["frozen"] != pytest.approx(losses["live"], rel=0, abs=2 * tolerances.loss())


def test_a_live_shift_moves_the_text_tower_only_when_it_has_a_gradient(clip, pairs, tmp_path):
    weight = {"multimodal_weight": 3.0}
    detached, whole = (ahnpl(clip, pairs, tmp_path, shift_gradient=g, **weight, **LIVE) for g in (False, True))
    (loss, without), (same, gradients) = (loss_and_gradients(trainer, range(8)) for trainer in (detached, whole))
    torch.testing.assert_close(loss, same)
    f = features_of(whole)
    image = f.image_embeds.detach()
    shifted = perturb_image(image, f.text_embeds, f.negative_text_embeds)
    # the visual half alone, through the shift alone
    visual, _ = multimodal_hard_negative_loss(
        image, f.text_embeds.detach(), shifted, f.negative_text_embeds.detach(), negative_mask=f.negative_text_mask
    )
    names = [name for name in gradients if "text_" in name]
    expected = torch.autograd.grad(3 * visual, [whole.model.get_parameter(name) for name in names])
    assert max(gradient.abs().max() for gradient in expected) > 1e-3
    allowed = tolerances.gradients(gradients)
    for name, gradient in zip(names, expected, strict=True):
        torch.testing.assert_close(gradients[name] - without[name], gradient, atol=allowed[name], rtol=0)
    for name in set(gradients) - set(names):
        torch.testing.assert_close(gradients[name], without[name], atol=allowed[name], rtol=0)


def test_without_the_multimodal_term_nothing_is_encoded_beforehand(clip, pairs, tmp_path):
    trainer = build(AHNPLTrainer, clip, pairs, tmp_path, margin_start=0.9, multimodal_weight=0.0)
    trainer.train()
    assert not (tmp_path / "run" / FOLDER).exists()
    assert len(history(trainer, "loss_visual_negative")) == 2
    assert "reference_text_embeds" not in trainer.model.required_features


def test_a_batch_without_reference_features_is_refused(clip, pairs, tmp_path):
    trainer = build(AHNPLTrainer, clip, pairs, tmp_path, margin_start=0.9)
    with pytest.raises(ValueError, match=r"'reference_text'.*shift_source='frozen'.*get_train"):
        trainer.compute_loss(trainer.model, batch_of(trainer, range(8)))


# The whole


def test_the_log_holds_every_term_which_its_weight_multiplies(clip, pairs, tmp_path):
    settings = {"multimodal_weight": 0.5, "positive_margin_weight": 2.0, "negative_margin_weight": 3.0}
    trainer = build(AHNPLTrainer, clip, pairs, tmp_path, margin_start=0.9, **settings)
    trainer.train()
    line = trainer.state.log_history[1]
    expected = line["loss_image_to_text"] + line["loss_text_to_image"] + 2 * line["loss_positive_margin"]
    expected += 0.5 * (line["loss_visual_negative"] + line["loss_textual_negative"]) + 3 * line["loss_negative_margin"]
    assert line["loss"] == pytest.approx(expected, rel=tolerances.rounding(8))
    assert line["active_positive_margins"] == 1 and 0 <= line["active_negative_margins"] <= 1
    assert {key for key in line if key.startswith("threshold")} == {"threshold_swap_att", "threshold_replace_obj"}


@pytest.mark.parametrize("changes", [INFO_NCE_FORMS[AHNPLTrainer].arguments, {"positive_margin_weight": 0.0}])
def test_without_its_terms_it_is_twice_info_nce_on_its_batch(changes, clip, pairs, tmp_path):
    trainer = ahnpl(clip, pairs, tmp_path, **changes)
    loss, gradients = loss_and_gradients(trainer, range(8))
    f = features_of(trainer)
    negatives = {"negative_text": f.negative_text_embeds, "negative_mask": f.negative_text_mask}
    plain = info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale, **negatives)[0]
    assert math.isclose(loss, 2 * plain.detach(), rel_tol=0, abs_tol=LOSS) is (
        changes == INFO_NCE_FORMS[AHNPLTrainer].arguments
    )
    # zero, and there: without it several processes would wait for each other
    assert gradients[MARGIN] == 0


def test_mini_batches_change_nothing(clip, pairs, tmp_path):
    whole, parts = (ahnpl(clip, pairs, tmp_path, mini_batch_size=size) for size in (None, 3))
    (loss, gradients), (other, actual) = (loss_and_gradients(trainer, range(8)) for trainer in (whole, parts))
    torch.testing.assert_close(other, loss, rtol=0, atol=LOSS)
    assert_same_gradients(actual, gradients)


def test_half_precision_leaves_features_of_before_and_state_in_full(clip, pairs, tmp_path):
    whole, half = (build(AHNPLTrainer, clip, pairs, tmp_path, margin_start=0.9, bf16=bf16) for bf16 in (False, True))
    for trainer in (whole, half):
        trainer.train()
    for name in ("loss", "loss_visual_negative", "margin"):
        assert history(half, name) == pytest.approx(history(whole, name), rel=0.02), name
    assert history(half, "loss") != history(whole, "loss")
    assert thresholds(half).dtype == weights(half)[MARGIN].dtype == torch.float32
    # the one file of both
    assert len(list((tmp_path / "run" / FOLDER).iterdir())) == 1


def test_on_siglip_the_unused_bias_is_frozen(siglip, pairs, tmp_path):
    trainer = build(AHNPLTrainer, siglip, pairs, tmp_path, margin_start=0.9)
    assert not trainer.model.plain.logit_bias.requires_grad
    trainer.train()
    assert history(trainer, "margin")[1] < history(trainer, "margin")[0]


def test_an_adapter_trains_with_the_features_of_its_start(clip, pairs, tmp_path):
    torch.manual_seed(0)
    target = r".*encoder\.layers\.\d+\.self_attn\.(q|k|v|out)_proj"
    adapter = LoraConfig(r=2, target_modules=target, init_lora_weights=False)
    model = get_peft_model(AutoModel.from_pretrained(clip), adapter)
    trainer = build(AHNPLTrainer, model, pairs, tmp_path, margin_start=0.9, learning_rate=0.01)
    batch = batch_of(trainer, range(8))
    with torch.no_grad():
        before = encode_texts(model.eval(), batch["input_ids"])
    trainer.train()
    path = trainer.reference.feature_file(trainer.train_dataset)
    inputs = WithReferenceText(trainer.data_collator, path)(trainer.train_dataset.__getitems__(list(range(8))))
    torch.testing.assert_close(inputs["reference_text_embeds"], before, atol=tolerances.embedding(), rtol=0)
    with torch.no_grad():
        assert (encode_texts(model.eval(), batch["input_ids"]) - before).abs().max() > 1e-3
    assert history(trainer, "margin")[1] < 0.9


def test_without_kinds_it_is_refused(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="AHNPLTrainer .*column 'negative_kinds'"):
        build(AHNPLTrainer, clip, pairs.remove_columns("negative_kinds"), tmp_path)


def test_a_row_without_a_negative_takes_part(clip, pairs, tmp_path):
    trainer = ahnpl(clip, with_row(pairs, 2, negative_captions=["", ""]), tmp_path)
    loss, gradients = loss_and_gradients(trainer, range(8))
    assert loss.isfinite() and all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shift_source": "base"}, "shift_source: found 'base',.* frozen, live"),
        ({"shift_gradient": True}, "shift_gradient=True,.* frozen"),
        ({"multimodal_weight": -0.1}, "multimodal_weight: found -0.1,.* 0"),
        ({"positive_margin_weight": math.nan}, "positive_margin_weight: found nan,.* 0"),
        ({"negative_margin_weight": math.inf}, "negative_margin_weight: found inf,.* 0"),
        ({"margin_minimum": 1.5}, "margin_minimum: found 1.5,.*-1 .*1"),
        ({"margin_minimum": math.nan}, "margin_minimum: found nan,.*cosine"),
        ({"margin_start": math.inf}, "margin_start: found inf,.*number"),
    ],
)
def test_a_wrong_setting_is_refused(settings, message, tmp_path):
    assert (AHNPLConfig.num_negatives, AHNPLConfig.shift_source, AHNPLConfig.margin_minimum) == (2, "frozen", 0.2)
    with pytest.raises(ValueError, match=message):
        arguments(AHNPLTrainer, tmp_path, **settings)
