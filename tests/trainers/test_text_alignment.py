"""Textual alignment: the loss of captions with generalized ones, what is frozen, level names refused. 6 seconds."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from datasets import List, Value
from transformers import AutoModel, AutoProcessor

from hfcomp.losses import info_nce_loss
from hfcomp.modeling import encode_texts
from hfcomp.trainers.text_alignment import TextAlignmentTrainer
from tests import tolerances
from tests.trainers import runs
from tests.trainers.group_rows import add_groups
from tests.trainers.runs import arguments, batch_of, history, loss_and_gradients, weights

VISION = ("vision_model", "visual_projection")


@functools.cache
def read(folder):
    return AutoModel.from_pretrained(folder), AutoProcessor.from_pretrained(folder)


def build(model, *args, **settings):
    """Builds as in `runs`, but reads a folder once."""
    settings["processing_class"] = read(model)[1]
    return runs.build(TextAlignmentTrainer, copy.deepcopy(read(model)[0]), *args, **settings)


@pytest.fixture(scope="module")
def rows(pairs):
    """Without images; some of the first eight generalized captions are equal."""
    return add_groups(pairs).select_columns(["caption", "generalized_caption"])


def with_levels(rows, **columns):
    feature = {list: List(Value("string")), str: Value("string")}
    for name, values in columns.items():
        rows = rows.add_column(name, values, feature=feature[type(values[0])])
    return rows


def features(trainer, texts):
    ids, _ = trainer.data_collator.tokenizer(texts)
    padded = trainer.data_collator.tokenizer.pad(ids, trainer.data_collator.tokenizer.length(ids))
    return encode_texts(trainer.model.backbone, padded)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_the_loss_is_infonce_of_captions_with_generalized_captions(name, rows, tmp_path, request):
    trainer = build(request.getfixturevalue(name), rows, tmp_path, mask_equal_texts=False)
    loss, gradients = loss_and_gradients(trainer, range(8))
    captions = features(trainer, rows["caption"][:8])
    generalized = features(trainer, rows["generalized_caption"][:8])
    scale = trainer.model.plain.logit_scale.exp().squeeze()
    expected, metrics = info_nce_loss(captions, generalized, logit_scale=scale)
    torch.testing.assert_close(loss, expected.detach(), rtol=0, atol=tolerances.loss())
    (gradient,) = torch.autograd.grad(expected, trainer.model.plain.logit_scale)
    allowed = tolerances.gradients(gradients)["backbone.logit_scale"]
    torch.testing.assert_close(gradients["backbone.logit_scale"], gradient, rtol=0, atol=allowed)
    assert not [name for name in gradients if any(part in name for part in VISION)]
    trainer.log({"loss": loss.item()})
    line = trainer.state.log_history[-1]
    assert line["loss_caption_to_generalized"] == pytest.approx(
        metrics["loss_image_to_text"].item(), abs=tolerances.loss()
    )
    assert line["loss_generalized_to_caption"] == pytest.approx(
        metrics["loss_text_to_image"].item(), abs=tolerances.loss()
    )
    assert (line["texts_encoded"], line["images_encoded"]) == (16, 0)


def test_both_texts_are_counted_where_they_are_cut(clip, rows, tmp_path):
    trainer = build(clip, rows, tmp_path)
    long = " ".join(rows["caption"][:10])
    texts = [{"caption": a, "generalized_caption": b} for a in ("a thing", long) for b in ("a thing", long)]
    assert trainer.data_collator(texts)["truncated"].tolist() == [0, 1, 1, 2]


def test_equal_generalized_captions_are_negatives_or_ignored(clip, rows, tmp_path):
    texts = [" ".join(text.casefold().split()) for text in rows["generalized_caption"][:8]]
    equal = torch.tensor([[text == other for other in texts] for text in texts])
    assert 8 < equal.sum() < 64
    losses = {}
    for ignored in (False, True):
        trainer = build(clip, rows, tmp_path, mask_equal_texts=ignored)
        losses[ignored] = trainer.compute_loss(trainer.model.eval(), batch_of(trainer, range(8))).detach()
    logits = trainer.model.plain.logit_scale.exp() * (
        features(trainer, rows["caption"][:8]) @ features(trainer, rows["generalized_caption"][:8]).T
    )
    logits = logits.masked_fill(equal & ~torch.eye(8, dtype=torch.bool), -torch.inf)
    own = torch.arange(8)
    expected = sum(torch.nn.functional.cross_entropy(part, own) for part in (logits, logits.T)) / 2
    torch.testing.assert_close(losses[True], expected.detach())
    assert losses[True] < losses[False]


def test_the_image_tower_stays_and_a_plain_model_is_left(clip, rows, tmp_path):
    trainer = build(clip, rows, tmp_path, max_steps=8, learning_rate=3e-3, lr_scheduler_type="constant")
    before = weights(trainer)
    trainer.train()
    losses = history(trainer, "loss")
    assert sum(losses[-2:]) < 0.8 * sum(losses[:2])
    moved = {name for name, value in weights(trainer).items() if not torch.equal(value, before[name])}
    assert moved and not [name for name in moved if any(part in name for part in VISION)]
    assert {"backbone.text_projection.weight", "backbone.logit_scale"} <= moved
    trainer.save_model(str(tmp_path / "final"))
    model, info = AutoModel.from_pretrained(tmp_path / "final", output_loading_info=True)
    assert not any(info.values()), info
    AutoProcessor.from_pretrained(tmp_path / "final")
    assert torch.equal(model.text_projection.weight, trainer.model.backbone.text_projection.weight)


def test_evaluation_counts_equal_texts_as_right(clip, rows, tmp_path):
    trainer = build(clip, rows, tmp_path, eval_dataset=rows.select(range(11)))
    metrics = trainer.evaluate()
    keys = "eval_caption_to_generalized_recall@1", "eval_generalized_to_caption_recall@1"
    with torch.no_grad():
        scores = features(trainer, rows["caption"][:11]) @ features(trainer, rows["generalized_caption"][:11]).T
    texts = rows["generalized_caption"][:11]
    assert len(set(texts)) < 11
    right = [texts[best] == text for best, text in zip(scores.argmax(1).tolist(), texts, strict=True)]
    # a column of equal texts ties with itself only
    assert metrics[keys[0]] == pytest.approx(sum(right) / 11)
    assert keys[1] in metrics and not [key for key in metrics if "image" in key and "encoded" not in key]


# What is refused


def test_the_name_of_a_level_is_refused_with_its_row(clip, rows, tmp_path):
    text = rows["generalized_caption"][5]
    levels = with_levels(rows, level_1=["a thing"] * 20, level_3=[[text.upper() + " "], *[["b"]] * 19])
    with pytest.raises(ValueError, match=rf"'generalized_caption', row \d+: found '{text}', .* 'level_3'"):
        build(clip, levels, tmp_path)
    build(clip, levels, tmp_path, allow_levels=True)
    # of another name in the dataset
    other = levels.rename_column("level_3", "concept")
    build(clip, other, tmp_path)
    with pytest.raises(ValueError, match="column 'level_3'"):
        build(clip, other, tmp_path, column_names={"level_3": "concept"})
    captions = with_levels(rows, level_2=[rows["caption"][7]] * 20)
    with pytest.raises(ValueError, match="'caption', row 7: .*--allow_levels true"):
        build(clip, captions, tmp_path)


def test_rows_with_the_name_of_a_level_are_left_out_on_request(clip, rows, tmp_path, caplog):
    texts = rows["generalized_caption"][:]
    levels = with_levels(rows, level_1=[texts[5]] * 20)
    trainer = build(clip, levels, tmp_path, leave_out_levels=True)
    left = [text for text in texts if text != texts[5]]
    assert trainer.train_dataset.column("generalized_caption") == left and 8 <= len(left) < 20
    assert f"{20 - len(left)} of 20 rows" in caplog.text
    with pytest.raises(ValueError, match="Set only one"):
        arguments(TextAlignmentTrainer, tmp_path, leave_out_levels=True, allow_levels=True)


def test_what_cannot_be_checked_is_told(clip, rows, tmp_path, caplog):
    told = "has none of the columns group, level_1, level_2, level_3, level_4"
    build(clip, with_levels(rows, group=["a thing"] * 20), tmp_path)
    build(clip, rows, tmp_path, allow_levels=True)
    assert told not in caplog.text
    build(clip, rows, tmp_path)
    assert told in caplog.text
    named = with_levels(rows, group=[rows["generalized_caption"][5]] * 20)
    with pytest.raises(ValueError, match="'a blue', .*column 'group'"):
        build(clip, named, tmp_path)


def test_missing_columns_and_texts_are_named(clip, rows, tmp_path):
    with pytest.raises(ValueError, match="TextAlignmentTrainer .*column 'generalized_caption'"):
        build(clip, rows.select_columns(["caption"]), tmp_path)
    texts = [*rows["generalized_caption"][:19], " "]
    empty = rows.remove_columns("generalized_caption").add_column("generalized_caption", texts)
    trainer = build(clip, empty, tmp_path)
    with pytest.raises(ValueError, match="'generalized_caption', row 19: found ' '"):
        batch_of(trainer, [19])


def test_a_frozen_text_tower_is_refused(tmp_path):
    assert arguments(TextAlignmentTrainer, tmp_path).freeze_towers == ["image"]
    with pytest.raises(ValueError, match="freeze_towers .*'text'"):
        arguments(TextAlignmentTrainer, tmp_path, freeze_towers=["text"])


def test_captions_are_paired_with_each_text_that_is_asked_for(clip, rows, tmp_path):
    levels = with_levels(rows, group=["thing"] * len(rows), level_4=["being"] * len(rows))
    settings = {"allow_levels": True, "mask_equal_texts": False}
    trainer = build(clip, levels, tmp_path, aligned_with=["group", "level_4"], **settings)
    dataset = trainer.train_dataset
    assert dataset.column("caption") == [text for text in rows["caption"] for _ in range(2)]
    assert dataset.column("generalized_caption") == ["thing", "being"] * len(rows)
    loss, _ = loss_and_gradients(trainer, range(8))
    captions = features(trainer, dataset.column("caption")[:8])
    names = features(trainer, dataset.column("generalized_caption")[:8])
    scale = trainer.model.plain.logit_scale.exp().squeeze()
    expected, _ = info_nce_loss(captions, names, logit_scale=scale)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_list_of_generalized_captions_is_a_pair_for_each(clip, rows, tmp_path, caplog):
    texts = rows["generalized_caption"][:]
    lists = {"generalized_caption": [[text, "it"] for text in texts]}
    trainer = build(clip, with_levels(rows.remove_columns("generalized_caption"), **lists), tmp_path)
    assert trainer.train_dataset.column("caption") == [text for text in rows["caption"] for _ in range(2)]
    assert trainer.train_dataset.column("generalized_caption") == [one for text in texts for one in (text, "it")]
    assert f"{len(rows)} rows yield {2 * len(rows)} pairs" in caplog.text


def test_names_that_are_trained_on_are_reported_and_missing_ones_named(clip, rows, tmp_path):
    def check(rows, **settings):
        return TextAlignmentTrainer.check_rows(rows, arguments(TextAlignmentTrainer, tmp_path, **settings))

    levels = with_levels(rows, group=["thing"] * len(rows), level_4=[*["being"] * (len(rows) - 1), ""])
    assert check(levels) is None
    assert check(levels, aligned_with=["group", "level_4"]).startswith("Training on the names in group, level_4")
    assert check(levels, allow_levels=True).startswith("allow_levels: ")
    with pytest.raises(ValueError, match="TextAlignmentTrainer .*column 'level_1'"):
        check(levels, aligned_with=["level_1"])
    with pytest.raises(ValueError, match=f"'level_4', row {len(rows) - 1}: found ''"):
        build(clip, levels, tmp_path, aligned_with=["generalized_caption", "level_4"])


@pytest.mark.parametrize("names", [[], ["caption"], ["group", "group"]])
def test_columns_to_align_with_are_known(clip, rows, tmp_path, names):
    with pytest.raises(ValueError, match="aligned_with: found .* generalized_caption, group"):
        build(clip, rows, tmp_path, aligned_with=names)
