"""Captions of one image in a batch: no negatives of each other for any trainer, counted, and only by their column."""

from __future__ import annotations

import logging

import pytest
import torch
from datasets import List, Value

from hfcomp.data.concepts.spans import RandomSpans
from hfcomp.data.loading import TrainingRows
from hfcomp.data.negatives import ShuffledNegatives, derangement
from hfcomp.data.pair_table import every_caption
from hfcomp.data.row_values import row_fields
from hfcomp.trainers.ahnpl import AHNPLTrainer
from hfcomp.trainers.c2lip import C2LIPTrainer
from hfcomp.trainers.ce_clip import CEClipTrainer
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.clear_glass import ClearGlassTrainer
from hfcomp.trainers.dcl import DCLTrainer
from hfcomp.trainers.hierarcaps import HierarCapsTrainer, add_sibling_negatives
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.released.ahnpl import AHNPLReleasedTrainer
from hfcomp.trainers.released.clear_glass import ClearGlassReleasedTrainer
from hfcomp.trainers.replaced_negatives import ReplacedNegativesTrainer
from hfcomp.trainers.text_alignment import TextAlignmentTrainer
from hfcomp.trainers.triplet_clip import TripletClipTrainer
from tests import tiny
from tests.trainers.group_rows import add_groups
from tests.trainers.own_objective import OwnTrainer
from tests.trainers.runs import batch_of, build, history, loss_and_gradients

LOGGER = "hfcomp.trainers._support.row_report"


@pytest.fixture(scope="module")
def captions():
    """Six images with three captions each, as `captions: all` makes rows of them."""
    lists = [[f"a {color} {shape}" for color in ("red", "blue", "green")] for shape in tiny.SHAPES]
    rows = tiny.pairs(6, ragged=False).remove_columns(["caption", "image_id"])
    return every_caption(rows.add_column("caption", lists, feature=List(Value("string"))), lambda line: None)


@pytest.fixture(scope="module")
def shared_rows():
    """Twenty-one rows of seven images, in groups, with concepts and neighbors."""
    rows = add_groups(tiny.pairs(21, concepts=True, ragged=False))
    near = [[f"tiny-{(index + step) % 7}" for step in (1, 2)] for index in range(21)]
    rows = rows.add_column("neighbor_ids", near, feature=List(Value("string")))
    return rows.map(lambda row, index: {"image_id": f"tiny-{index % 7}"}, with_indices=True)


def loss_by_hand(trainer, inputs, image_of):
    """InfoNCE in float64 of a batch whose rows are captions of the images `image_of`."""
    trainer.model.eval()
    with torch.no_grad():
        f = trainer.gather_features(trainer.model, inputs)
    logits = (f.logit_scale * f.image_embeds @ f.text_embeds.T).double()
    losses = []
    for matrix in (logits, logits.T):
        for i in range(len(matrix)):
            keys = [j for j in range(len(matrix)) if j == i or image_of[j] != image_of[i]]
            losses.append(torch.logsumexp(matrix[i, keys], 0) - matrix[i, i])
    return torch.stack(losses).mean()


def test_every_caption_of_an_image_is_true_of_it(clip, captions, tmp_path):
    trainer = build(InfoNCETrainer, clip, captions, tmp_path)
    rows = [0, 6, 12, 1, 7, 2, 3, 9]  # all three captions of image 0, two of 1 and of 3, one of 2
    loss, _ = loss_and_gradients(trainer, rows)
    expected = loss_by_hand(trainer, batch_of(trainer, rows), [row % 6 for row in rows])
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    plain = loss_by_hand(trainer, batch_of(trainer, rows), rows)
    assert loss < plain - 1e-3


def test_they_are_counted_in_the_log(clip, captions, tmp_path, caplog):
    trainer = build(InfoNCETrainer, clip, captions, tmp_path, per_device_train_batch_size=18, max_steps=2)
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        trainer.train()
    assert history(trainer, "same_image_pairs") == [6 * 3 * 2] * 2
    (line,) = [record.message for record in caplog.records if record.name == LOGGER]
    assert line.startswith("18 of 18 rows share their image with another row (by 'image_id'")


def test_without_the_column_their_images_say_it(clip, captions, tmp_path):
    """`tests/data/test_one_photograph.py` has more of this."""
    rows = captions.remove_columns("image_id")
    chosen = [0, 6, 12, 1, 7, 2, 3, 9]
    loss, _ = loss_and_gradients(build(InfoNCETrainer, clip, rows, tmp_path), chosen)
    assert loss == loss_and_gradients(build(InfoNCETrainer, clip, captions, tmp_path), chosen)[0]


def test_where_all_images_differ_nothing_is_left_out(clip, captions, tmp_path, caplog):
    rows = captions.select(range(6)).remove_columns("image_id")
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, per_device_train_batch_size=6)
    batch = batch_of(trainer, range(6))
    assert "image_id" not in batch
    loss, _ = loss_and_gradients(trainer, range(6))
    torch.testing.assert_close(loss.double(), loss_by_hand(trainer, batch, range(6)), rtol=1e-6, atol=0)
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        trainer.train()
    assert not history(trainer, "same_image_pairs")
    assert not [record for record in caplog.records if record.name == LOGGER]


def test_the_column_may_have_another_name_and_gaps(clip, captions, tmp_path):
    rows = captions.rename_column("image_id", "photo")
    some = rows.map(lambda row, index: {"photo": None if index == 7 else row["photo"]}, with_indices=True)
    some = some.map(
        lambda row, index: {"photo": None, "image": tiny.image(9)} if index == 1 else {}, with_indices=True
    )
    chosen = [0, 6, 12, 1, 7, 2, 3, 9]
    trainer = build(InfoNCETrainer, clip, some, tmp_path, column_names={"image_id": "photo"})
    image_of = [0, 0, 0, "1a", "1b", 2, 3, 3]
    loss, _ = loss_and_gradients(trainer, chosen)
    torch.testing.assert_close(
        loss.double(), loss_by_hand(trainer, batch_of(trainer, chosen), image_of), rtol=1e-6, atol=0
    )


@pytest.mark.follows("hfcomp/data/image_ids.py", "If the rows show different images, give each row its own value:")
@pytest.mark.parametrize("given", [True, False])
def test_one_image_for_all_rows_is_refused_unless_each_row_has_an_id(given, clip, captions, tmp_path):
    subset = captions.select([0, 6, 12])
    rows = subset.map(lambda row: {"image_id": "one"}) if given else subset.remove_columns("image_id")
    with pytest.raises(ValueError, match=r"3 rows .* {'image_id': str\(number\)}, with_indices"):
        build(InfoNCETrainer, clip, rows, tmp_path, per_device_train_batch_size=3).train()
    apart = rows.map(lambda row, number: {"image_id": str(number)}, with_indices=True)
    trainer = build(InfoNCETrainer, clip, apart, tmp_path, per_device_train_batch_size=3)
    loss, _ = loss_and_gradients(trainer, range(3))
    expected = loss_by_hand(trainer, batch_of(trainer, range(3)), range(3))
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)
    trainer.train()
    assert history(trainer, "same_image_pairs") == [0, 0]


@pytest.mark.follows("hfcomp/trainers/_support/row_report.py", "Add hfcomp.data.row_values.row_fields(rows, names)")
@pytest.mark.parametrize("streamed", [True, False])
def test_an_own_collator_adds_the_key(streamed, clip, captions, tmp_path):
    """As a collator of before: rows that share an image are then refused until their ids are in the batch."""
    rows = captions.remove_columns("image_id")
    rows = rows.to_iterable_dataset() if streamed else rows
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, per_device_train_batch_size=18, max_steps=1)
    own = trainer.data_collator
    trainer.data_collator = lambda rows: {key: value for key, value in own(rows).items() if key != "image_id"}
    with pytest.raises(ValueError, match=r"hfcomp.data.row_values.row_fields\(rows, names\)"):
        trainer.train()
    incomplete = trainer.data_collator
    trainer.data_collator = lambda rows: incomplete(rows) | row_fields(rows, [row["row"] for row in rows])
    trainer.train()
    assert history(trainer, "same_image_pairs") == [36]


def test_where_all_rows_have_one_image_the_advice_fits_a_recipe(clip, captions, tmp_path):
    rows = captions.select([0, 6, 12])
    with pytest.raises(ValueError, match="captions: all"):
        build(InfoNCETrainer, clip, rows, tmp_path, per_device_train_batch_size=2).train()


def test_a_stream_of_one_image_is_warned_of(clip, captions, tmp_path, caplog):
    def logged_messages(rows):
        caplog.clear()
        trainer = build(InfoNCETrainer, clip, rows.to_iterable_dataset(), tmp_path)
        with caplog.at_level(logging.WARNING, logger=LOGGER):
            trainer.train()
        assert len(history(trainer, "loss")) == 2
        return [record.message for record in caplog.records if record.name == LOGGER]

    (line,) = logged_messages(captions.map(lambda row: {"image_id": "one"}))
    assert line.startswith("column 'image_id': all rows of each batch")
    assert not logged_messages(captions)


@pytest.mark.parametrize("column", [True, False])
@pytest.mark.parametrize("name", ["info_nce", "text_alignment"])
def test_a_collator_that_disagrees_with_the_column_is_refused(name, column, clip, shared_rows, tmp_path):
    trainer_class, settings = SETTINGS[name]
    rows = shared_rows if column else shared_rows.remove_columns("image_id")
    trainer = build(trainer_class, clip, rows, tmp_path, **settings)
    own = trainer.data_collator

    def collate(rows):
        batch = own(rows)
        return batch | {"image_id": batch["row"]} if "image_id" not in batch else without(batch)

    def without(batch):
        return {key: value for key, value in batch.items() if key != "image_id"}

    trainer.data_collator = collate
    said = r"hfcomp.data.row_values.row_fields\(rows, names\)" if column else "has no column of that name"
    with pytest.raises(ValueError, match=said):
        trainer.train()


def test_an_id_of_another_type_names_its_row(clip, captions, tmp_path):
    rows = captions.remove_columns("image_id").add_column("image_id", [0.5] * 18)
    with pytest.raises(ValueError, match="column 'image_id', row 0: found 0.5"):
        build(InfoNCETrainer, clip, rows, tmp_path).train()


def test_streamed_rows_have_their_ids(clip, captions, tmp_path):
    rows = captions.to_iterable_dataset()
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, per_device_train_batch_size=18, max_steps=1)
    trainer.train()
    assert history(trainer, "same_image_pairs") == [36]


def test_evaluation_leaves_them_out_too(clip, captions, tmp_path):
    trainer = build(InfoNCETrainer, clip, captions, tmp_path, per_device_eval_batch_size=18)
    batch = batch_of(trainer, range(18))
    expected = loss_by_hand(trainer, batch, [row % 6 for row in range(18)])
    assert trainer.evaluate(captions)["eval_loss"] == pytest.approx(expected.item(), rel=1e-6)


NEGATIVES = {"num_negatives": 2}
SETTINGS = {
    "info_nce": (InfoNCETrainer, {}),
    "negatives": (InfoNCETrainer, NEGATIVES),
    "drawn": (InfoNCETrainer, {"num_negatives": 1, "draw_negatives": True}),
    "dcl": (DCLTrainer, NEGATIVES),
    "hard_negatives": (ReplacedNegativesTrainer, NEGATIVES),
    "ce_clip": (CEClipTrainer, NEGATIVES),
    "ahnpl": (AHNPLTrainer, {"margin_start": 0.9}),
    "ahnpl_released": (AHNPLReleasedTrainer, NEGATIVES),
    "triplet_clip": (TripletClipTrainer, {}),
    "cement": (CementTrainer, {}),
    "mini_batches": (CementTrainer, {"mini_batch_size": 3}),
    "c2lip": (C2LIPTrainer, {"cross_attended_weight": 1.0}),
    "clear_glass_pairs": (ClearGlassTrainer, {"grouping": "none"}),
    "clear_glass": (ClearGlassTrainer, {}),
    "clear_glass_centroid": (ClearGlassTrainer, {"grouping": "centroid"}),
    "clear_glass_released": (ClearGlassReleasedTrainer, {}),
    "text_alignment": (TextAlignmentTrainer, {"allow_levels": True}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_trainer_counts_and_leaves_out(name, clip, shared_rows, tmp_path):
    trainer_class, settings = SETTINGS[name]
    if "clear_glass" in name:
        settings = {**settings, "groups_per_batch": 2, "pairs_per_group": 4}
    trainer = build(trainer_class, clip, shared_rows, tmp_path, per_device_train_batch_size=8, max_steps=3, **settings)
    losses = []
    compute = trainer.compute_loss

    def both(model, inputs, *args, **kwargs):
        without = {**inputs, "image_id": torch.arange(len(inputs["row"]))}
        threshold = {key: value.clone() for key, value in trainer.model.objective_state.state_dict().items()}
        with torch.no_grad():
            losses.append([compute(model, without).item()])
        trainer.step_log.__init__(trainer.step_log._entries)
        trainer.model.objective_state.load_state_dict(threshold)
        loss = compute(model, inputs, *args, **kwargs)
        losses[-1].append(loss.item())
        return loss

    trainer.compute_loss = both
    trainer.train()
    counted = history(trainer, "same_image_pairs")
    assert len(counted) == 3 and max(counted) > 0
    for (without, loss), number in zip(losses, counted, strict=True):
        assert loss < without if number else loss == pytest.approx(without, rel=1e-6)


def test_the_sigmoid_loss_leaves_them_out(siglip, shared_rows, tmp_path):
    trainer = build(InfoNCETrainer, siglip, shared_rows, tmp_path, per_device_train_batch_size=14, max_steps=1)
    trainer.train()
    assert history(trainer, "same_image_pairs")[0] > 0


def test_rows_that_are_brought_along_have_ids(clip, shared_rows, tmp_path):
    """NegCLIP: a neighbor is of no image of the batch, but the rows that bring it may be of one image."""
    settings = {"num_negatives": 1, "num_neighbors": 1, "per_device_train_batch_size": 3, "max_steps": 4}
    trainer = build(InfoNCETrainer, clip, shared_rows, tmp_path, **settings)
    batches = []
    encode = trainer.gather_features
    trainer.gather_features = lambda model, inputs: batches.append(inputs) or encode(model, inputs)
    trainer.train()
    expected = []
    for batch in batches:
        images = [row % 7 for row in batch["row"].tolist()]
        assert len(images) == 6
        expected.append(sum(a == b for a in images for b in images) - 6)
    assert history(trainer, "same_image_pairs") == expected
    assert max(expected) > 0


@pytest.mark.parametrize("change", ["shuffled", "random_spans"])
def test_the_rows_of_controls_have_ids(change, clip, shared_rows, tmp_path):
    if change == "shuffled":
        rows, trainer_class = ShuffledNegatives(shared_rows, derangement(range(21), 0)), CementTrainer
    else:
        rows, trainer_class = RandomSpans(shared_rows, 0), C2LIPTrainer
    trainer = build(trainer_class, clip, rows, tmp_path)
    keys = batch_of(trainer, range(21))["image_id"].tolist()
    assert [keys[row] == keys[0] for row in range(21)] == [row % 7 == 0 for row in range(21)]


def test_an_own_objective_need_not_know(clip, shared_rows, tmp_path):
    trainer = build(OwnTrainer, clip, shared_rows, tmp_path, num_negatives=2)
    trainer.train()
    assert len(history(trainer, "loss")) == 2
    assert not history(trainer, "same_image_pairs")


def test_siblings_are_what_rows_of_other_images_say(shared_rows):
    """Three rows of an image say three colors; the fourth color is another image's."""
    rows = shared_rows.select(range(8)).map(
        lambda row, index: {
            "level_4": "place" if index == 7 else "thing",
            "caption": ["red", "blue", "green", "white", "red", "blue", "green", "white"][index],
            "image_id": "one" if index < 3 else f"other-{index}",
        },
        with_indices=True,
    )
    drawn = add_sibling_negatives(
        TrainingRows(rows, ["level_4", "caption", "image_id"]), ["level_4", "caption"], seed=0
    )
    negatives = [texts[1] for texts in drawn.column("negative_captions")]
    assert negatives[:3] == ["white"] * 3
    assert set(negatives[3:]) - {"white"}


def test_hierarcaps_takes_a_set_with_ids(clip, shared_rows, tmp_path):
    rows = shared_rows.map(lambda row: {"level_4": row["group"] or "none"})
    trainer = build(
        HierarCapsTrainer, clip, rows, tmp_path, chain_columns=["level_4", "generalized_caption", "caption"]
    )
    trainer.train()
    assert len(history(trainer, "loss")) == 2
