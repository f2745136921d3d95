"""The trainers of CLEAR GLASS: groups in the loss, batches of groups, what is frozen and evaluated. 10 seconds."""

from __future__ import annotations

import copy
import functools
import logging
import math

import pytest
import torch
from transformers import AutoModel, AutoProcessor

from hfcomp.data.sampling.groups import GroupOrder, Groups
from hfcomp.losses import centroid_group_loss, info_nce_loss, pairwise_group_loss
from hfcomp.losses.group_pairwise import released_pairwise_group_loss
from hfcomp.trainers.clear_glass import ClearGlassConfig, ClearGlassTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.released.clear_glass import ClearGlassReleasedTrainer
from tests import tolerances
from tests.trainers import runs
from tests.trainers.group_rows import add_groups, names
from tests.trainers.runs import (
    arguments,
    assert_same_gradients,
    assert_same_weights,
    batch_of,
    history,
    loss_and_gradients,
    weights,
)

TEMPERATURES = {"temperature": 0.2, "inner_temperature": 0.3}
# two groups of four: rows of a, and both rows of d with repeats
ROWS = [0, 5, 9, 12, 3, 8, 3, 3]
MASK = torch.tensor([[True] * 4, [True, True, False, False]])


@functools.cache
def read(folder):
    return AutoModel.from_pretrained(folder), AutoProcessor.from_pretrained(folder)


def build(trainer_class, model, *args, **settings):
    """Builds as in `runs`, with two groups of four, and reads a model's folder once."""
    groups = {"pairs_per_group": 4} if issubclass(trainer_class, ClearGlassTrainer) else {}
    settings = {**groups, **settings, "processing_class": read(model)[1]}
    return runs.build(trainer_class, copy.deepcopy(read(model)[0]), *args, **settings)


@pytest.fixture(scope="module")
def rows(pairs):
    return add_groups(pairs)


def test_the_defaults_are_those_of_the_paper(tmp_path):
    config = ClearGlassConfig(str(tmp_path), use_cpu=True)
    assert (config.groups_per_batch, config.pairs_per_group, config.per_device_train_batch_size) == (2, 10, 20)
    assert (config.grouping, config.alpha) == ("pairwise", 0.7)
    assert (config.temperature, config.inner_temperature) == (0.1, 0.07)


def test_the_rows_are_what_the_tests_take_them_for():
    assert [names()[row] for row in ROWS] == ["a"] * 4 + ["d"] * 4


@pytest.mark.parametrize(
    ("trainer_class", "grouping", "loss", "alpha"),
    [
        (ClearGlassTrainer, "pairwise", pairwise_group_loss, 0.9),
        (ClearGlassTrainer, "centroid", centroid_group_loss, 0.9),
        (ClearGlassReleasedTrainer, "pairwise", released_pairwise_group_loss, 0.9),
        (ClearGlassReleasedTrainer, "centroid", centroid_group_loss, 0.1),
    ],
)
def test_the_loss_is_that_of_the_groups_in_the_batch(trainer_class, grouping, loss, alpha, clip, rows, tmp_path):
    trainer = build(trainer_class, clip, rows, tmp_path, grouping=grouping, alpha=0.9, **TEMPERATURES)
    actual, gradients = loss_and_gradients(trainer, ROWS)
    assert "backbone.logit_scale" not in gradients
    f = trainer.gather_features(trainer.model, batch_of(trainer, ROWS))
    groups = f.image_embeds.view(2, 4, -1), f.text_embeds.view(2, 4, -1)
    expected, metrics = loss(*groups, mask=MASK, alpha=alpha, **TEMPERATURES)
    torch.testing.assert_close(actual, expected.detach())
    whole, _ = loss(*groups, alpha=alpha, **TEMPERATURES)
    assert abs(whole - expected) > 1e-3  # repeats do not count
    assert metrics["loss_outer"] != metrics["loss_inner"]


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_without_groups_it_is_infonce_on_the_pairs_of_the_batch(name, rows, tmp_path, request):
    folder = request.getfixturevalue(name)
    trainer = build(ClearGlassTrainer, folder, rows, tmp_path, grouping="none")
    actual, gradients = loss_and_gradients(trainer, ROWS)
    plain = build(InfoNCETrainer, folder, rows, tmp_path, sigmoid=False)
    expected, other = loss_and_gradients(plain, ROWS[:6])
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerances.loss())
    assert gradients["backbone.logit_scale"] != 0
    assert_same_gradients(gradients, other)


def test_an_epoch_is_that_of_the_group_order(clip, rows, tmp_path):
    trainer = build(ClearGlassTrainer, clip, rows, tmp_path, max_steps=-1, num_train_epochs=2, data_seed=3)
    seen = []
    encode = trainer.gather_features
    trainer.gather_features = lambda model, inputs: seen.append(inputs["row"].tolist()) or encode(model, inputs)
    trainer.train()
    groups = Groups.from_columns(rows["group"][:], rows["hard_negative_groups"][:])
    order = GroupOrder(groups, groups_per_batch=2, pairs_per_group=4, seed=3)
    expected = []
    for epoch in range(2):
        order.set_epoch(epoch)
        drawn = list(order)
        expected += [drawn[start : start + 8] for start in range(0, len(drawn), 8)]
    assert seen == expected
    assert trainer.state.global_step == len(expected) == 2 * (2 + 2 + 1 + 1)


def test_what_is_missing_for_the_groups_is_told(clip, rows, tmp_path, caplog):
    name = "hfcomp.trainers.grouped"
    with caplog.at_level(logging.INFO, logger=name):
        build(ClearGlassTrainer, clip, rows, tmp_path, minimum_group_size=3)
    said = [(record.levelname, record.message) for record in caplog.records if record.name == name]
    assert said[0] == ("INFO", "3 groups with 17 rows. An epoch has 5 batches of 2 groups with 4 pairs each.")
    assert {level for level, _ in said[1:]} == {"WARNING"}
    assert any("each has fewer than 3 rows ('d', 'lone')" in text for _, text in said)
    assert any("('gone')" in text for _, text in said)


def test_captions_that_are_names_of_concepts_are_told(clip, rows, tmp_path, caplog):
    build(ClearGlassTrainer, clip, rows, tmp_path)
    assert "the name of a concept" not in caplog.text
    texts = rows["caption"][:]
    named = rows.add_column("concept", [texts[4], *["a thing"] * (len(rows) - 1)])
    build(ClearGlassTrainer, clip, named, tmp_path, column_names={"level_3": "concept"})
    said = f"{texts.count(texts[4])} of {len(rows)} captions are the name of a concept, the first in row "
    assert said in caplog.text and f"{texts[4]!r} (column 'level_3')" in caplog.text


def test_the_level_that_names_the_groups_may_be_a_level_column(clip, rows, tmp_path):
    named = rows.rename_column("group", "level_1")
    trainer = build(ClearGlassTrainer, clip, named, tmp_path, column_names={"group": "level_1"})
    expected = build(ClearGlassTrainer, clip, rows, tmp_path)
    assert list(trainer.group_order) == list(expected.group_order)


@pytest.mark.parametrize("grouping", ["pairwise", "centroid"])
def test_training_lowers_both_terms_and_leaves_the_scale(grouping, clip, rows, tmp_path):
    settings = {"max_steps": 10, "learning_rate": 1e-3, "lr_scheduler_type": "constant", "grouping": grouping}
    two = rows.select([row for row, name in enumerate(names(20)) if name in ("b", "c")])
    trainer = build(ClearGlassTrainer, clip, two, tmp_path, **settings)
    scale = trainer.model.plain.logit_scale.detach().clone()
    trainer.train()
    for term in ("loss_outer", "loss_inner"):
        losses = history(trainer, term)
        assert sum(losses[-3:]) < 0.8 * sum(losses[:3]), term
    assert {"accuracy_outer", "accuracy_inner", "changed_weight_fraction"} <= trainer.state.log_history[0].keys()
    assert not history(trainer, "logit_scale")
    trainer.save_model(str(tmp_path / "final"))
    model, info = AutoModel.from_pretrained(tmp_path / "final", output_loading_info=True)
    assert not any(info.values()), info
    assert torch.equal(model.logit_scale.detach(), scale)


def test_a_resumed_run_equals_one_that_was_never_stopped(clip_with_dropout, rows, tmp_path):
    def trainer():
        # an epoch has 6 steps, so that one checkpoint is of the first and one of the midst of the second
        return build(
            ClearGlassTrainer, clip_with_dropout, rows, tmp_path, max_steps=10, save_strategy="steps", save_steps=4
        )

    whole = trainer()
    whole.train()
    for step in (4, 8):
        resumed = trainer()
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{step}"))
        assert_same_weights(weights(resumed), weights(whole))
        assert history(resumed, "changed_weight_fraction") == history(whole, "changed_weight_fraction")


def test_evaluation_needs_no_groups(clip, rows, pairs, tmp_path):
    part = pairs.select(range(8))
    trainer = build(ClearGlassTrainer, clip, rows, tmp_path, eval_dataset=part, temperature=0.25)
    metrics = trainer.evaluate()
    assert {"eval_image_to_text_recall@1", "eval_text_to_image_recall@1"} <= metrics.keys()
    f = trainer.gather_features(trainer.model.eval(), batch_of(trainer, range(8)))
    expected, _ = info_nce_loss(f.image_embeds, f.text_embeds, logit_scale=torch.tensor(4.0))
    assert metrics["eval_loss"] == pytest.approx(expected.item())
    # a last batch that is no multiple of a group
    trainer = build(ClearGlassTrainer, clip, rows, tmp_path, eval_dataset=pairs.select(range(11)))
    assert math.isfinite(trainer.evaluate()["eval_loss"])


def test_generalized_captions_take_the_place_of_captions(clip, rows, tmp_path):
    trainer = build(ClearGlassTrainer, clip, rows, tmp_path, column_names={"caption": "generalized_caption"})
    expected = trainer.data_collator.tokenizer(rows["generalized_caption"][:2])[0]
    assert batch_of(trainer, range(2))["input_ids"].tolist() == expected


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"grouping": "pairs"}, "grouping: found 'pairs',.* pairwise, centroid, none"),
        ({"temperature": 0.0}, r"temperature: found 0.0,.* 0 .*\(cosine\)"),
        ({"inner_temperature": math.inf}, "inner_temperature: found inf,.* 0"),
        ({"alpha": 1.1}, "alpha: found 1.1, expected .*0 to 1"),
        ({"alpha": math.nan}, "alpha: found nan,.* 0 to 1"),
        ({"groups_per_batch": 1}, "groups_per_batch .*pairs_per_group .*found 1, 4 and 2"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size=True"),
        ({"minimum_group_size": 0}, "groups_per_batch .*pairs_per_group .*minimum_group_size .*found 2, 4 and 0"),
        ({"groups_per_batch": 3}, "per_device_train_batch_size=8 .*3 groups of 4 .*12 rows.*batch_size"),
    ],
)
def test_a_wrong_setting_is_refused(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        arguments(ClearGlassTrainer, tmp_path, **{"pairs_per_group": 4, **settings})


def test_an_order_of_another_kind_is_refused(clip, rows, tmp_path):
    with pytest.raises(ValueError, match="train_sampling_strategy='sequential': group"):
        build(ClearGlassTrainer, clip, rows, tmp_path, train_sampling_strategy="sequential")


def test_missing_columns_are_named(clip, pairs, tmp_path):
    with pytest.raises(ValueError, match="ClearGlassTrainer .*columns 'group', 'hard_negative_groups'"):
        build(ClearGlassTrainer, clip, pairs, tmp_path)


def test_groups_are_checked_before_a_model_is_scored(rows, pairs, tmp_path):
    config = arguments(ClearGlassTrainer, tmp_path, pairs_per_group=4)
    assert ClearGlassTrainer.check_rows(rows, config) is None
    with pytest.raises(ValueError, match="needs .*columns 'group', 'hard_negative_groups'"):
        ClearGlassTrainer.check_rows(pairs, config)
    alone = rows.remove_columns("hard_negative_groups").add_column("hard_negative_groups", [["gone"]] * len(rows))
    with pytest.raises(ValueError, match="no group .*'gone'"):
        ClearGlassTrainer.check_rows(alone, config)


def test_a_stream_is_refused(clip, rows, tmp_path):
    with pytest.raises(TypeError, match="'group' .*all rows"):
        build(ClearGlassTrainer, clip, rows.to_iterable_dataset(), tmp_path)
