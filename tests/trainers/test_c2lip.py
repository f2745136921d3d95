"""The trainer of C2LIP: its three terms on SigLIP and CLIP, both sources of concepts, what it saves. 14 seconds."""

from __future__ import annotations

import copy
import functools
import math
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, AutoProcessor

from hfcomp.data.collators import CompositionalCollator
from hfcomp.losses import (
    concept_info_nce_loss,
    concept_loss,
    cross_attended_concept_loss,
    cross_attended_info_nce_loss,
    info_nce_loss,
    sigmoid_loss,
)
from hfcomp.modeling import OBJECTIVE_STATE_FILE
from hfcomp.trainers.c2lip import C2LIPConfig, C2LIPTrainer
from hfcomp.trainers.hooks import INFO_NCE_FORMS
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tolerances
from tests.trainers import runs
from tests.trainers.runs import (
    arguments,
    assert_same_gradients,
    assert_same_weights,
    batch_of,
    history,
    loss_and_gradients,
    weights,
    with_row,
)

BOTH_OFF = INFO_NCE_FORMS[C2LIPTrainer].arguments
SOURCES = pytest.mark.parametrize("source", ["phrase", "tokens"])
MODELS = pytest.mark.parametrize("name", ["clip", "siglip", "siglip2"])


@functools.cache
def read(folder):
    return AutoModel.from_pretrained(folder), AutoProcessor.from_pretrained(folder)


def build(trainer_class, model, *args, **settings):
    """Builds as in `runs`, but reads a folder once: that takes longer than most tests."""
    if isinstance(model, Path):
        model, settings["processing_class"] = copy.deepcopy(read(model)[0]), read(model)[1]
    return runs.build(trainer_class, model, *args, **settings)


@pytest.fixture
def folder(name, request):
    return request.getfixturevalue(name)


def test_the_defaults_are_those_of_the_paper(tmp_path):
    config = arguments(C2LIPTrainer, tmp_path)
    assert (config.concept_weight, config.cross_attended_weight, config.attention_temperature) == (1, 0.01, 1)
    assert (config.concept_source, config.mask_equal_texts, config.max_concepts) == ("phrase", True, 8)


@MODELS
@SOURCES
def test_the_loss_is_the_sum_of_its_terms(folder, source, pairs, tmp_path):
    settings = {"cross_attended_weight": 0.5, "concept_weight": 2.0, "attention_temperature": 0.3}
    trainer = build(C2LIPTrainer, folder, pairs, tmp_path, concept_source=source, max_concepts=2, **settings)
    loss, gradients = loss_and_gradients(trainer, range(8))
    f = trainer.gather_features(trainer.model, batch_of(trainer, range(8)))
    assert (f.concept_image_index >= 0).sum() == 12 and f.tokens.shape[:2] == (8, 4)
    shared = {"logit_scale": f.logit_scale}
    losses = info_nce_loss, concept_info_nce_loss, cross_attended_info_nce_loss
    if folder.name != "clip":
        shared["logit_bias"] = f.logit_bias
        losses = sigmoid_loss, concept_loss, cross_attended_concept_loss
        assert gradients["backbone.logit_bias"] != 0
    terms = (
        losses[0](f.image_embeds, f.text_embeds, **shared)[0],
        losses[1](f.image_embeds, f.concept_embeds, f.concept_image_index, **shared)[0],
        losses[2](f.tokens, f.concept_embeds, f.concept_image_index, attention_temperature=0.3, **shared)[0],
    )
    torch.testing.assert_close(loss, (terms[0] + 2 * terms[1] + 0.5 * terms[2]).detach())
    # one scale for all three
    expected = torch.autograd.grad(terms[0] + 2 * terms[1] + 0.5 * terms[2], trainer.model.plain.logit_scale)[0]
    torch.testing.assert_close(gradients["backbone.logit_scale"], expected)


def test_the_two_sources_embed_a_concept_differently(siglip, pairs, tmp_path):
    features = []
    for source in ("phrase", "tokens"):
        trainer = build(C2LIPTrainer, siglip, pairs, tmp_path, concept_source=source, max_concepts=2)
        batch = batch_of(trainer, range(8))
        assert ("concept_token_mask" in batch) == (source == "tokens") != ("concept_input_ids" in batch)
        features.append(trainer.gather_features(trainer.model.eval(), batch))
    assert torch.equal(features[0].concept_image_index, features[1].concept_image_index)
    assert (features[0].concept_embeds - features[1].concept_embeds).abs().max() > 0.1


@pytest.mark.parametrize(
    ("changes", "absent"),
    [
        (BOTH_OFF, {"concept_embeds", "concept_image_index", "concept_id", "tokens"}),
        ({"cross_attended_weight": 0.0}, {"tokens"}),
        ({"concept_weight": 0.0, "mask_equal_texts": False}, {"concept_id", "text_id"}),
    ],
)
def test_a_term_without_weight_computes_nothing(changes, absent, siglip, pairs, tmp_path):
    trainer = build(C2LIPTrainer, siglip, pairs, tmp_path, **changes)
    f = trainer.gather_features(trainer.model.eval(), batch_of(trainer, range(8)))
    everything = {
        "image_embeds",
        "text_embeds",
        "concept_embeds",
        "concept_image_index",
        "concept_id",
        "tokens",
        "logit_scale",
        "logit_bias",
        "rows",
    }
    everything |= {"image_id", "text_id"}  # of the set, whatever the loss reads
    assert set(f) == everything - absent
    trainer.train()
    logged = {name for line in trainer.state.log_history for name in line}
    assert ("loss_concept" in logged) == bool(trainer.args.concept_weight)
    assert ("loss_cross_attended" in logged) == bool(trainer.args.cross_attended_weight)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_without_its_weights_it_is_plain_fine_tuning(folder, pairs, tmp_path):
    plain = pairs.remove_columns(["concepts", "concept_spans"])
    runs = [
        build(C2LIPTrainer, folder, plain, tmp_path, concept_source="tokens", max_concepts=3, **BOTH_OFF),
        build(InfoNCETrainer, folder, plain, tmp_path),
    ]
    for trainer in runs:
        trainer.train()
    assert_same_weights(*map(weights, runs))
    assert history(runs[0], "loss") == history(runs[1], "loss") == history(runs[0], "loss_contrastive")


def test_infonce_on_siglip_freezes_the_bias(siglip, pairs, tmp_path):
    trainer = build(C2LIPTrainer, siglip, pairs, tmp_path, sigmoid=False)
    assert not trainer.model.plain.logit_bias.requires_grad
    trainer.train()
    assert history(trainer, "loss_image_to_concept")


def test_the_sigmoid_needs_a_bias(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="sigmoid=True .*logit_bias"):
        build(C2LIPTrainer, clip, pairs, tmp_path, sigmoid=True)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_equal_concepts_of_other_images_are_negatives_or_ignored(folder, pairs, tmp_path):
    rows = with_row(pairs, 3, caption="A Red cube", concepts=["A Red cube"], concept_spans=[[[0, 10]]])
    rows = with_row(rows, 5, caption="a ball, a red  cube", concepts=["a red  cube"], concept_spans=[[[8, 19]]])
    losses_by_mask = {}
    for ignored in (False, True):
        trainer = build(C2LIPTrainer, folder, rows, tmp_path, max_concepts=2, mask_equal_texts=ignored)
        batch = batch_of(trainer, range(8))
        losses_by_mask[ignored] = trainer.compute_loss(trainer.model.eval(), batch).detach()
        f = trainer.gather_features(trainer.model, batch)
    assert losses_by_mask[True] < losses_by_mask[False]
    phrases = [" ".join(text.lower().split()) for row in range(8) for text in (rows[row]["concepts"] + [""])[:2]]
    assert phrases.count("a red cube") == 3  # of rows 0, 3 and 5
    number = torch.tensor([phrases.index(text) for text in phrases])
    shared = {"logit_scale": f.logit_scale, "concept_id": number}
    losses = concept_info_nce_loss, cross_attended_info_nce_loss
    if folder.name == "siglip":
        shared["logit_bias"] = f.logit_bias
        losses = concept_loss, cross_attended_concept_loss
        plain = sigmoid_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale, logit_bias=f.logit_bias)[0]
    else:
        plain = info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=f.logit_scale)[0]
    terms = [
        loss(x, f.concept_embeds, f.concept_image_index, **shared)[0]
        for loss, x in zip(losses, (f.image_embeds, f.tokens), strict=True)
    ]
    torch.testing.assert_close(losses_by_mask[True], (plain + terms[0] + 0.01 * terms[1]).detach())


@SOURCES
def test_mini_batches_change_nothing(source, siglip, pairs, tmp_path):
    settings = {"concept_source": source, "cross_attended_weight": 0.5}
    whole = loss_and_gradients(build(C2LIPTrainer, siglip, pairs, tmp_path, **settings), range(8))
    parts = loss_and_gradients(build(C2LIPTrainer, siglip, pairs, tmp_path, mini_batch_size=3, **settings), range(8))
    torch.testing.assert_close(parts[0], whole[0], rtol=0, atol=3 * tolerances.loss())  # three terms
    assert_same_gradients(parts[1], whole[1])


@pytest.mark.parametrize(("name", "source"), [("siglip", "phrase"), ("clip", "tokens")])
def test_training_lowers_the_terms_and_saves_a_plain_model(folder, source, pairs, tmp_path):
    settings = {"max_steps": 12, "learning_rate": 3e-3, "lr_scheduler_type": "constant", "concept_source": source}
    trainer = build(C2LIPTrainer, folder, pairs.select(range(8)), tmp_path, cross_attended_weight=1.0, **settings)
    trainer.train()
    for term in ("loss_contrastive", "loss_concept", "loss_cross_attended"):
        assert history(trainer, term)[-1] < 0.8 * history(trainer, term)[0], term
    trainer.save_model(str(tmp_path / "final"))
    assert not (tmp_path / "final" / OBJECTIVE_STATE_FILE).exists()
    model, info = AutoModel.from_pretrained(tmp_path / "final", output_loading_info=True)
    assert not any(info.values()), info
    ids = torch.tensor([[3, 4, 5, 1]])
    expected = trainer.model.backbone.eval().get_text_features(input_ids=ids).pooler_output
    torch.testing.assert_close(model.eval().get_text_features(input_ids=ids).pooler_output, expected)


@SOURCES
def test_a_resumed_run_equals_one_that_was_never_stopped(source, clip_with_dropout, pairs, tmp_path):
    def trainer():
        run = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 4}
        return build(C2LIPTrainer, clip_with_dropout, pairs, tmp_path, concept_source=source, **run)

    whole = trainer()
    whole.train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert_same_weights(weights(resumed), weights(whole))
    assert history(resumed, "loss_cross_attended")[-2:] == history(whole, "loss_cross_attended")[-2:]


@SOURCES
def test_evaluation_of_a_set_that_ends_in_a_smaller_batch(source, siglip, pairs, tmp_path):
    trainer = build(C2LIPTrainer, siglip, pairs, tmp_path, concept_source=source, eval_dataset=pairs.select(range(11)))
    metrics = trainer.evaluate()
    assert math.isfinite(metrics["eval_loss"])
    assert {"eval_image_to_text_recall@1", "eval_text_to_image_recall@1"} <= metrics.keys()
    assert trainer.evaluate()["eval_loss"] == metrics["eval_loss"]


@SOURCES
def test_cut_and_shortened_concepts_are_counted_in_the_log(source, clip, pairs, tmp_path):
    caption = "a red cube " * 12
    end = len(caption)
    changes = {"caption": caption, "concepts": ["a red cube", "cube"], "concept_spans": [[[0, 10]], [[end - 5, end]]]}
    rows = with_row(pairs.select(range(8)), 0, **changes)
    trainer = build(C2LIPTrainer, clip, rows, tmp_path, concept_source=source, max_concepts=2, max_steps=1)
    trainer.train()
    assert history(trainer, "cut_concepts") == []
    assert history(trainer, "shortened_concepts") == ([1] if source == "tokens" else [])
    trainer = build(C2LIPTrainer, clip, rows, tmp_path, concept_source=source, max_concepts=1, max_steps=1)
    trainer.train()
    assert history(trainer, "cut_concepts") == [5]  # rows 0, 1, 3, 5, 7 have two
    assert history(trainer, "shortened_concepts") == []  # a concept that is cut is not shortened, too


@SOURCES
def test_an_own_collator_has_to_read_the_source_of_the_config(source, clip, pairs, tmp_path):
    settings = {"max_concepts": 8, "concept_tokens": source == "phrase"}
    collator = CompositionalCollator(read(clip)[1], read(clip)[0].config, **settings)
    trainer = build(C2LIPTrainer, clip, pairs, tmp_path, data_collator=collator, concept_source=source)
    message = {"phrase": "'concept_spans', row .*concept_tokens=False", "tokens": "concept_tokens=True"}
    with pytest.raises(ValueError, match=message[source]):
        trainer.train()
    collator.concept_tokens = source == "tokens"
    trainer.train()


@SOURCES
def test_an_adapter_of_the_pooling_head_trains(source, siglip, pairs, tmp_path):
    target = r"vision_model\.head\.attention|.*self_attn\.v_proj"
    model = get_peft_model(copy.deepcopy(read(siglip)[0]), LoraConfig(r=2, target_modules=target))
    how = {"phrase": {"mini_batch_size": 3}, "tokens": {"gradient_checkpointing": True, "bf16": True}}[source]
    trainer = build(C2LIPTrainer, model, pairs, tmp_path, concept_source=source, **how)
    before = weights(trainer)
    trainer.train()
    moved = {name for name, value in weights(trainer).items() if (value - before[name]).abs().max() > 1e-6}
    # PEFT adds the adapter to weights of the head and takes it away again, which rounds
    assert moved and all("lora_" in name for name in moved)
    assert [name for name in moved if "head.attention" in name]


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"concept_weight": -0.1}, "concept_weight: found -0.1,.* 0"),
        ({"cross_attended_weight": math.nan}, "cross_attended_weight: found nan,.* 0"),
        ({"attention_temperature": 0.0}, r"attention_temperature: found 0.0,.* 0 .*\(cosine\)"),
        ({"attention_temperature": math.inf}, "attention_temperature: found inf,.* 0"),
        ({"concept_source": "token"}, "concept_source: found 'token',.* phrase, tokens"),
    ],
)
def test_a_wrong_setting_is_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(C2LIPTrainer, tmp_path, **settings)


def test_no_room_for_concepts_is_refused(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="max_concepts .* 1.* 0"):
        build(C2LIPTrainer, clip, pairs, tmp_path, max_concepts=0)
    assert C2LIPConfig.max_concepts == 8


def test_missing_columns_are_named_with_the_way_out(clip, pairs, tmp_path):
    without = pairs.remove_columns("concepts")
    with pytest.raises(ValueError, match=r"'concepts'; .*hfcomp build concepts.*concept_parser.*column_names"):
        build(C2LIPTrainer, clip, without, tmp_path)
    with pytest.raises(ValueError, match=r"columns 'concepts', 'concept_spans'"):
        build(C2LIPTrainer, clip, without.remove_columns("concept_spans"), tmp_path, concept_source="tokens")
    without = pairs.remove_columns("concept_spans")
    build(C2LIPTrainer, clip, without, tmp_path)
    with pytest.raises(ValueError, match=r"needs .*column 'concept_spans'; .*concept_source='phrase'"):
        build(C2LIPTrainer, clip, pairs, tmp_path, eval_dataset=without, concept_source="tokens")


def test_columns_of_another_name(clip, pairs, tmp_path):
    names = {"concepts": "phrases", "concept_spans": "places"}
    renamed = pairs.rename_columns(names)
    trainer = build(C2LIPTrainer, clip, renamed, tmp_path, column_names=names, concept_source="tokens")
    assert batch_of(trainer, range(2))["concept_token_mask"].any()


def test_a_row_without_spans_is_named(clip, pairs, tmp_path):
    trainer = build(C2LIPTrainer, clip, with_row(pairs, 5, concept_spans=[]), tmp_path, concept_source="tokens")
    with pytest.raises(ValueError, match="'concept_spans', row 5: found no .*'concepts' has 2"):
        batch_of(trainer, range(8))
