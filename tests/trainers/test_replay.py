"""Replay: rows of a general set in every batch of the task, as keys and anchors without negatives."""

from __future__ import annotations

import json

import datasets
import pytest
import torch

from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.clear_glass import ClearGlassTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.losses import reference
from tests.trainers import objectives
from tests.trainers.group_rows import add_groups
from tests.trainers.runs import arguments, assert_same_weights, build, history, weights

TEXTS_ONLY = ("HierarCapsTrainer", "TextAlignmentTrainer")
FIRST = 40  # of the images of replay rows


def general(number: int = 14) -> datasets.Dataset:
    """A general set of images that the task does not have; its first row has a caption of the task."""
    texts = [tiny.captions()[0], *(text.replace("a ", "the ") for text in tiny.captions()[5 : number + 4])]
    rows = {"image": [tiny.image(FIRST + row) for row in range(number)], "caption": texts}
    rows["image_id"] = [f"general-{row}" for row in range(number)]
    return datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())


@pytest.fixture(scope="module")
def task() -> datasets.Dataset:
    return tiny.pairs(20, concepts=True)


def replaying(trainer_class, clip, rows, folder, **settings):
    settings = {"replay_fraction": 0.5, "replay_dataset": general(), "per_device_train_batch_size": 4, **settings}
    return build(trainer_class, clip, rows, folder, **settings)


def record(trainer) -> list[dict]:
    """The batches that a trainer will train on."""
    seen, encode = [], trainer.gather_features
    trainer.gather_features = lambda model, inputs: seen.append(inputs) or encode(model, inputs)
    return seen


@pytest.mark.parametrize("mini_batch_size", [None, 3])
@pytest.mark.parametrize("trainer_class", [InfoNCETrainer, CementTrainer])
def test_the_loss_is_that_of_loops_over_both_sets_together(clip, task, tmp_path, trainer_class, mini_batch_size):
    settings = {"num_negatives": 1} if trainer_class is CementTrainer else {"num_negatives": 2}
    trainer = replaying(trainer_class, clip, task, tmp_path, mini_batch_size=mini_batch_size, **settings)
    batch = next(iter(trainer.get_train_dataloader()))
    rows = batch["row"].tolist()
    ours, replayed = [row for row in rows if row < 20], [row - 20 for row in rows if row >= 20]
    assert len(ours) == len(replayed) == 4
    texts = [task[row]["caption"] if row < 20 else general()[row - 20]["caption"] for row in rows]
    tokenizer = trainer.data_collator.tokenizer
    assert torch.equal(batch["input_ids"], tokenizer.pad(tokenizer(texts)[0], batch["input_ids"].shape[1]))
    is_task = batch["row"] < 20
    assert not batch["negative_text_mask"][~is_task].any() and batch["negative_text_mask"][is_task].any()
    trainer.model.train()
    actual = trainer.compute_loss(trainer.model, batch)
    f = trainer.gather_features(trainer.model, batch)
    ids = {"image_id": f.image_id, "text_id": f.text_id, "negative_text_id": f.negative_text_id}
    if trainer_class is InfoNCETrainer:
        expected = reference.info_nce(
            f.image_embeds,
            f.text_embeds,
            logit_scale=f.logit_scale,
            negative_text=f.negative_text_embeds,
            negative_mask=f.negative_text_mask,
            **ids,
        )
    else:
        assert not batch["negative_image_mask"][~is_task].any()
        expected = reference.cement(
            f.image_embeds,
            f.text_embeds,
            f.negative_image_embeds,
            f.negative_text_embeds[:, 0],
            logit_scale=f.logit_scale,
            margin=trainer.margin(f.negative_concreteness[:, 0]),
            image_mask=f.negative_image_mask,
            text_mask=f.negative_text_mask[:, 0],
            **ids | {"negative_text_id": f.negative_text_id[:, 0]},
        )
    torch.testing.assert_close(actual, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(objectives.SETTINGS))
def test_every_trainer_has_it_or_says_why_not(clip, task, tmp_path, name):
    cls, rows = objectives.trainer_class(name), add_groups(task)
    settings = {"max_steps": 1, "replay_fraction": 0.5, "per_device_train_batch_size": 4, **objectives.SETTINGS[name]}
    if "groups_per_batch" in settings:
        settings["per_device_train_batch_size"] = 0
    if name in TEXTS_ONLY:
        with pytest.raises(ValueError, match=r"replay_fraction=0\.5: .*pairs"):
            arguments(cls, tmp_path, **settings)
        return
    trainer = build(cls, clip, rows, tmp_path, replay_dataset=general(), **settings)
    seen = record(trainer)
    trainer.train()
    size = trainer.args.per_device_train_batch_size
    assert (seen[0]["row"] >= len(rows)).sum() == size and (seen[0]["row"] < len(rows)).sum() == size
    negative_images = history(trainer, "negative_images") or [0]
    assert history(trainer, "images_encoded")[0] == 2 * size + negative_images[0]
    if "negative_text_mask" in seen[0]:
        assert not seen[0]["negative_text_mask"][seen[0]["row"] >= len(rows)].any()


def test_the_set_of_trainers_that_have_it_is_that_of_image_caption_pairs():
    without = [name for name in objectives.SETTINGS if not objectives.trainer_class(name).config_class.replays]
    assert sorted(without) == sorted(TEXTS_ONLY)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("streamed", [False, True], ids=["loaded", "streamed"])
def test_a_resumed_run_is_the_uninterrupted_one(clip, task, tmp_path, streamed, workers):
    """The task's epoch has five batches, a pass of the replay set three: step 4 is in the second of either."""
    settings = {"max_steps": 7, "save_strategy": "steps", "save_steps": 4, "random_crop": 0.5, "num_negatives": 2}
    settings |= {"dataloader_num_workers": workers, "shuffle_buffer": 6}

    def run(resume=False):
        rows = task.remove_columns(["concepts", "concept_spans"])
        rows = rows.to_iterable_dataset(num_shards=2) if streamed else rows
        trainer = replaying(InfoNCETrainer, clip, rows, tmp_path, **settings)
        seen = record(trainer)
        trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-4") if resume else None)
        return trainer, [(batch["row"].tolist(), batch["pixels"].boxes.tolist()) for batch in seen]

    whole, expected = run()
    resumed, seen = run(resume=True)
    assert len(expected) == 7 and seen == expected[4:]
    assert_same_weights(weights(resumed), weights(whole))


@pytest.mark.parametrize("streamed", [False, True], ids=["loaded", "streamed"])
def test_each_pass_shows_every_replay_row_once(clip, task, tmp_path, streamed):
    rows = task.to_iterable_dataset() if streamed else task
    trainer = replaying(InfoNCETrainer, clip, rows, tmp_path, max_steps=6, replay_dataset=general(12))
    seen = record(trainer)
    trainer.train()
    first = 2**40 if streamed else 20
    replayed = [[row - first for row in batch["row"].tolist() if row >= first] for batch in seen]
    assert [len(part) for part in replayed] == [4] * 6
    for start in (0, 3):
        assert sorted(sum(replayed[start : start + 3], [])) == list(range(12))
    assert replayed[:3] != replayed[3:]


def test_rows_of_one_image_or_text_are_no_negatives_whichever_set_they_are_of(clip, task, tmp_path):
    shared = general(20).map(lambda row, n: {"image_id": f"tiny-{n}" if n < 4 else row["image_id"]}, with_indices=True)
    counts = []
    for rows in (general(20), shared):
        trainer = replaying(
            InfoNCETrainer, clip, task, tmp_path, max_steps=1, per_device_train_batch_size=20, replay_dataset=rows
        )
        trainer.train()
        counts.append((history(trainer, "same_image_pairs")[0], history(trainer, "same_text_pairs")[0]))
    assert counts == [(0, 2), (8, 0)]  # the first row of both has one caption, and then also one image
    assert trainer.args.batch_notes() == ["20 replay rows added"]


def test_files_of_one_name_are_one_image_only_if_they_are_one_file(clip, tmp_path):
    sets = []
    for folder, seed in (("task", 0), ("general", 100)):
        (tmp_path / folder).mkdir()
        paths = [tmp_path / folder / f"{n}.png" for n in range(8)]
        for n, path in enumerate(paths):
            tiny.image(seed + n).save(path)
        texts = tiny.captions()[seed : seed + 8]
        sets.append(datasets.Dataset.from_dict({"image": [str(path) for path in paths], "caption": texts}))
    own, other = sets
    both = datasets.Dataset.from_dict({name: other[name][:6] + own[name][:2] for name in ("image", "caption")})
    counts = []
    for replay in (other, both):
        trainer = replaying(
            InfoNCETrainer, clip, own, tmp_path, max_steps=1, per_device_train_batch_size=8, replay_dataset=replay
        )
        trainer.train()
        counts.append(history(trainer, "same_image_pairs") or [0])
    assert counts == [[0], [4]]


def test_a_row_that_stops_training_is_named_by_its_set(clip, task, tmp_path, monkeypatch):
    trainer = replaying(InfoNCETrainer, clip, task, tmp_path, max_steps=1)
    reduce = trainer.reduce_loss
    trainer.reduce_loss = lambda loss, *rest: reduce(loss * torch.nan, *rest)
    seen = record(trainer)
    with pytest.raises(FloatingPointError):
        trainer.train()
    content = json.loads((tmp_path / "run" / "nonfinite_batch.json").read_text())
    assert sorted(content["rows"] + [20 + row for row in content["replay_rows"]]) == sorted(seen[0]["row"].tolist())
    assert len(content["replay_rows"]) == 4

    broken = general().cast_column("image", datasets.Image(decode=False)).to_list()
    for row in broken:
        row["image"] = {"bytes": b"no image", "path": None}
    broken = datasets.Dataset.from_list(broken).cast_column("image", datasets.Image())
    trainer = replaying(InfoNCETrainer, clip, task, tmp_path, max_steps=1, replay_dataset=broken)
    with pytest.raises(ValueError, match=r"'image', row \d+ .*replay"):
        trainer.train()


def test_a_stream_is_judged_by_its_own_rows(clip, task, tmp_path):
    rows = task.map(lambda row: {"negative_image": None}, features=task.features).to_iterable_dataset()
    trainer = replaying(CementTrainer, clip, rows, tmp_path, max_steps=1)
    with pytest.raises(ValueError, match="none of the 4 rows .*negative_image"):
        trainer.train()


def test_captions_of_both_sets_are_drawn(clip, task, tmp_path):
    def several(row):
        return {"caption": [row["caption"], f"two {row['caption']}"]}

    rows = task.select_columns(["image", "caption"]).map(several)
    for replay in (general(), general().map(several)):
        trainer = replaying(
            InfoNCETrainer, clip, rows, tmp_path, max_steps=1, draw_captions=True, replay_dataset=replay
        )
        trainer.train()


def test_a_group_keeps_its_rows_and_replay_rows_are_groups_of_one(clip, task, tmp_path):
    settings = {"groups_per_batch": 2, "pairs_per_group": 4, "per_device_train_batch_size": 0, "max_steps": 1}
    losses = {}
    for grouping in ("pairwise", "none"):
        trainer = replaying(ClearGlassTrainer, clip, add_groups(task), tmp_path, grouping=grouping, **settings)
        batch = next(iter(trainer.get_train_dataloader()))
        trainer.model.train()
        losses[grouping] = trainer.compute_loss(trainer.model, batch).item()
        mask, rows = trainer.pair_mask(batch), trainer.split_groups(batch["row"])
        single = rows[:, 0] >= len(task)
        assert len(mask) == 10 and single.sum() == 8 and mask[single].sum(1).tolist() == [1] * 8
        names = add_groups(task)["group"]
        for group in rows[~single].tolist():
            assert len({names[row] for row in group}) == 1
    assert all(0 < value < 10 for value in losses.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replay_fraction": 1.0}, r"replay_fraction: found 1\.0,.* 0 .* 1, .*0\.5"),
        ({"replay_dataset": None}, r"replay_fraction=0\.5 .*--replay_dataset"),
        ({"replay_fraction": 0.0}, r"replay_dataset .*replay_fraction=0"),
        ({"no_duplicates": True}, r"with no_duplicates=True"),
        ({"dataloader_drop_last": False}, r"dataloader_drop_last=False"),
        ({"replay_dataset": "stream"}, r"replay_dataset .*streamed"),
        ({"replay_dataset": "unnamed"}, r"replay_dataset .*'caption'; .*image, text"),
        ({"replay_dataset": "small"}, r"3 images, .*4 replay rows"),
        ({"replay_dataset": "one image"}, r"1 images, .*4 replay rows"),
        ({"replay_fraction": 0.01}, r"batch of 4.* 0\.2, .* 0"),
        ({"replay_dataset": "blank"}, r"'caption', row 1: found ''"),
        ({"replay_dataset": "transformed"}, r"replay_dataset .*transform"),
    ],
)
def test_what_cannot_be_replayed_is_refused(clip, task, tmp_path, settings, message):
    made = {
        "stream": lambda: general().to_iterable_dataset(),
        "unnamed": lambda: general().rename_column("caption", "text").remove_columns("image_id"),
        "small": lambda: general(3),
        "one image": lambda: general().map(lambda row: {"image_id": "one"}),
        "blank": lambda: general().map(
            lambda row, n: {"caption": "" if n == 1 else row["caption"]}, with_indices=True
        ),
        "transformed": lambda: general().with_transform(lambda batch: batch),
    }
    name = settings.get("replay_dataset")
    settings = settings | ({"replay_dataset": made[name]()} if name else {})
    with pytest.raises((ValueError, TypeError), match=message):
        replaying(InfoNCETrainer, clip, task, tmp_path, **settings)


@pytest.mark.parametrize(
    "settings", [{"num_neighbors": 1, "draw_negatives": True, "num_negatives": 1}, {"random_crop": 0.5}], ids=str
)
def test_rows_that_bring_others_along_have_replay_rows_beside_them(clip, task, tmp_path, settings):
    """The fraction counts the rows of per_device_train_batch_size, as in the controls, which bring none along."""
    near = [[f"tiny-{(row + 1) % 20}"] for row in range(20)]
    seen = []
    for workers in (0, 1):
        trainer = replaying(
            InfoNCETrainer,
            clip,
            task.add_column("neighbor_ids", near),
            tmp_path,
            max_steps=7,
            dataloader_num_workers=workers,
            **settings,
        )
        batches = record(trainer)
        trainer.train()
        seen.append([batch["row"].tolist() for batch in batches])
    rows = seen[0][0]
    assert seen[0] == seen[1] and len(rows) == 4 + 4 * (1 + settings.get("num_neighbors", 0))
    assert sum(row >= 20 for row in rows) == 4
