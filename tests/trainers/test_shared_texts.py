"""Equal captions of different images in a batch: no negatives of each other for any trainer, counted, as asked for."""

from __future__ import annotations

import logging

import pytest
import torch
from datasets import List, Value

from hfcomp.data.row_values import text_key
from hfcomp.trainers.ce_clip import CEClipTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.replaced_negatives import ReplacedNegativesTrainer
from tests import tiny
from tests.trainers.runs import batch_of, build, history, loss_and_gradients, with_row
from tests.trainers.test_shared_images import SETTINGS, shared_rows  # noqa: F401

LOGGER = "hfcomp.trainers._support.row_report"
# rows 1 and 4 have one caption, which is in 5 too but for case and white space
CAPTIONS = ["ball 0", "a ball on a table", "ball 2", "ball 3", "a ball on a table", "A ball on  a table "]
# row 0's second negative is the caption of 1, 4 and 5; row 1's first is its own
NEGATIVES = [["a cube", "a ball on a table"], ["a ball  on a table", "a ring"], *[["a ring", "ball 0"]] * 4]


@pytest.fixture(scope="module")
def equal():
    """Six photographs of which three have one caption; four rows have the caption of row 0 as a negative."""
    rows = tiny.pairs(6, ragged=False).remove_columns(["caption", "image_id", "negative_captions"])
    rows = rows.add_column("caption", CAPTIONS)
    return rows.add_column("negative_captions", NEGATIVES, feature=List(Value("string")))


def loss_by_hand(trainer, inputs, captions, negatives=None):
    """InfoNCE in float64 of rows with these captions, which are keys of each other where they differ."""
    trainer.model.eval()
    with torch.no_grad():
        f = trainer.gather_features(trainer.model, inputs)
    logits = (f.logit_scale * f.image_embeds @ f.text_embeds.T).double()
    losses = []
    for direction, matrix in enumerate((logits, logits.T)):
        for i in range(len(matrix)):
            entries = [matrix[i, j] for j in range(len(matrix)) if j == i or captions[j] != captions[i]]
            if negatives is not None and direction == 0:
                products = (f.logit_scale * f.image_embeds[i] @ f.negative_text_embeds.flatten(0, 1).T).double()
                texts = [text for row in negatives for text in row]
                entries += [x for x, text in zip(products, texts, strict=True) if text != captions[i]]
            losses.append(torch.logsumexp(torch.stack(entries), 0) - matrix[i, i])
    return torch.stack(losses).mean()


def alike(texts):
    return [" ".join(text.lower().split()) for text in texts]


@pytest.mark.parametrize("num_negatives", [0, 2])
def test_an_equal_caption_is_true_of_both_images(num_negatives, clip, equal, tmp_path):
    trainer = build(InfoNCETrainer, clip, equal, tmp_path, num_negatives=num_negatives)
    batch, negatives = batch_of(trainer, range(6)), [alike(row) for row in NEGATIVES] if num_negatives else None
    loss, _ = loss_and_gradients(trainer, range(6))
    expected = loss_by_hand(trainer, batch, alike(CAPTIONS), negatives)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    off = build(InfoNCETrainer, clip, equal, tmp_path, num_negatives=num_negatives, mask_equal_texts=False)
    assert not {"text_id", "negative_text_id"} & set(off.gather_features(off.model.eval(), batch))
    plain = loss_by_hand(off, batch, range(6), negatives)  # numbers equal no text
    torch.testing.assert_close(loss_and_gradients(off, range(6))[0].double(), plain, rtol=1e-6, atol=0)
    assert loss < plain - 1e-3


def test_they_are_counted_in_the_log_and_said_at_the_start(clip, equal, tmp_path, caplog):
    settings = {"num_negatives": 2, "per_device_train_batch_size": 6}
    trainer = build(InfoNCETrainer, clip, equal, tmp_path, **settings)
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        trainer.train()
    # 1, 4 and 5 with each other; (0, 1) for these three, (1, 0) too, and that of 2 to 5 for row 0
    assert history(trainer, "same_text_pairs") == [6, 6]
    assert history(trainer, "same_text_negatives") == [3 + 3 + 4] * 2
    (line,) = [record.message for record in caplog.records if record.name == LOGGER]
    assert line.startswith("3 of 6 rows share their caption with another row")


@pytest.mark.follows("hfcomp/trainers/_support/row_report.py", "keep them as negatives, set mask_equal_texts=False")
def test_off_nothing_is_counted_or_said(clip, equal, tmp_path, caplog):
    trainer = build(InfoNCETrainer, clip, equal, tmp_path, per_device_train_batch_size=6, mask_equal_texts=False)
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        trainer.train()
    assert not history(trainer, "same_text_pairs")
    assert not [record for record in caplog.records if record.name == LOGGER]


def test_evaluation_leaves_them_out_too(clip, equal, tmp_path):
    trainer = build(InfoNCETrainer, clip, equal, tmp_path)
    expected = loss_by_hand(trainer, batch_of(trainer, range(6)), alike(CAPTIONS))
    assert trainer.evaluate(equal)["eval_loss"] == pytest.approx(expected.item(), rel=1e-6)


def test_an_own_negative_that_is_the_caption_sets_no_threshold(clip, equal, tmp_path):
    """Its lead is 0: the caption is as near to the image as itself."""
    rows = equal.map(lambda row: {"negative_kinds": ["other", "other"]})
    thresholds = {}
    for mask in (True, False):
        trainer = build(CEClipTrainer, clip, rows, tmp_path, num_negatives=2, mask_equal_texts=mask)
        batch = batch_of(trainer, range(6))
        f = trainer.gather_features(trainer.model.eval(), batch)
        lead = (f.image_embeds * f.text_embeds).sum(1)[:, None] - (
            f.image_embeds[:, None] * f.negative_text_embeds
        ).sum(2)
        there = torch.ones(6, 2, dtype=torch.bool)
        there[1, 0] = not mask
        thresholds[mask] = trainer.next_threshold(f)
        torch.testing.assert_close(thresholds[mask].max(), lead[there].mean())
    assert not torch.equal(thresholds[True], thresholds[False])


def test_an_own_negative_that_is_the_caption_replaces_nothing(clip, equal, tmp_path):
    trainer = build(ReplacedNegativesTrainer, clip, equal, tmp_path, num_negatives=2)
    f = trainer.gather_features(trainer.model.eval(), batch_of(trainer, range(6)))
    assert (trainer.slots(f) < 0).nonzero().tolist() == [[1, 0]]


def collated_without(trainer, name):
    own = trainer.data_collator
    trainer.data_collator = lambda rows: {key: value for key, value in own(rows).items() if key != name}
    return own


@pytest.mark.follows("hfcomp/trainers/_support/row_report.py", "or set mask_equal_texts=False.")
def test_a_collator_that_says_no_texts_is_refused_and_the_advice_helps(clip, equal, tmp_path):
    from hfcomp.data.row_values import row_fields  # as the message has it

    settings = {"num_negatives": 2, "per_device_train_batch_size": 6}
    trainer = build(InfoNCETrainer, clip, equal, tmp_path, **settings)
    collated_without(trainer, "text_id")
    with pytest.raises(ValueError, match=r"'text_id'.*hfcomp.data.row_values.row_fields\(rows, names\)"):
        trainer.train()
    less = trainer.data_collator
    trainer.data_collator = lambda rows: less(rows) | row_fields(rows, [row["row"] for row in rows])
    trainer.train()

    trainer = build(InfoNCETrainer, clip, equal, tmp_path, **settings)
    own = collated_without(trainer, "negative_text_id")
    with pytest.raises(ValueError, match="'negative_text_id'.*hfcomp.data.row_values.text_key"):
        trainer.train()
    least = trainer.data_collator

    def with_numbers(rows):
        numbers = torch.tensor([[text_key(text) for text in row["negative_captions"]] for row in rows])
        assert torch.equal(numbers, own(rows)["negative_text_id"])
        return least(rows) | {"negative_text_id": numbers}

    trainer.data_collator = with_numbers
    trainer.train()
    trainer = build(InfoNCETrainer, clip, equal, tmp_path, **settings, mask_equal_texts=False)
    collated_without(trainer, "text_id")
    trainer.train()


def test_a_bad_caption_is_named_as_before(clip, equal, tmp_path):
    rows = with_row(equal, 2, caption=None)
    with pytest.raises(ValueError, match="'caption', row 2: found None"):
        build(InfoNCETrainer, clip, rows, tmp_path, per_device_train_batch_size=6).train()


@pytest.mark.parametrize("name", SETTINGS)
def test_every_trainer_counts_and_leaves_out(name, clip, shared_rows, tmp_path):  # noqa: F811
    """Twenty-one images of seven captions, in place of the seven images of the set."""
    trainer_class, settings = SETTINGS[name]
    if "clear_glass" in name:
        settings = {**settings, "groups_per_batch": 2, "pairs_per_group": 4}
    said = shared_rows["caption"][:7]
    rows = shared_rows.map(
        lambda row, index: {"image_id": str(index), "caption": said[index % 7], "concept_spans": [], "concepts": []},
        with_indices=True,
    )
    trainer = build(trainer_class, clip, rows, tmp_path, per_device_train_batch_size=8, max_steps=3, **settings)
    losses = []
    compute = trainer.compute_loss

    def both(model, inputs, *args, **kwargs):
        threshold = {key: value.clone() for key, value in trainer.model.objective_state.state_dict().items()}
        trainer.args.mask_equal_texts = False
        with torch.no_grad():
            losses.append([compute(model, inputs).item()])
        trainer.args.mask_equal_texts = True
        trainer.step_log.__init__(trainer.step_log._entries)
        trainer.model.objective_state.load_state_dict(threshold)
        loss = compute(model, inputs, *args, **kwargs)
        losses[-1].append(loss.item())
        return loss

    trainer.compute_loss = both
    trainer.train()
    counted = [sum(parts) for parts in zip(history(trainer, "same_text_pairs"), left_out(trainer), strict=True)]
    assert len(counted) == 3 and max(counted) > 0
    for (without, loss), number in zip(losses, counted, strict=True):
        assert loss < without if number else loss == pytest.approx(without, rel=1e-6)


def left_out(trainer):
    """The negatives and phrases of each line that are left out because of their texts."""
    lines = [line for line in trainer.state.log_history if "loss" in line]
    return [line.get("same_text_negatives", 0) + line.get("same_text_concepts", 0) for line in lines]
