"""Batches without equal captions and images in a trainer: what it trains on, resumes to, says and refuses."""

from __future__ import annotations

import logging

import pytest
from datasets import List, Value

from hfcomp.trainers.clear_glass import ClearGlassTrainer
from hfcomp.trainers.hierarcaps import HierarCapsTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.text_alignment import TextAlignmentTrainer
from tests import tiny
from tests.trainers.group_rows import add_groups
from tests.trainers.runs import build, history, weights

LOGGER = "hfcomp.trainers._support.sampling"


@pytest.fixture(scope="module")
def rows():
    """Twenty-four photographs, two rows of each of the last four, with nine captions."""
    pairs = tiny.pairs(24, ragged=False)
    said = pairs["caption"][:9]
    return pairs.map(
        lambda row, index: {"caption": said[index % 9], "image_id": f"photo {index if index < 20 else index - 4}"},
        with_indices=True,
    )


def seen_by(trainer, **how):
    """The rows of each batch that is trained on."""
    batches = []
    gather = trainer.gather_features
    trainer.gather_features = lambda model, inputs: batches.append(inputs["row"].tolist()) or gather(model, inputs)
    trainer.train(**how)
    return batches


def test_no_batch_has_a_caption_or_an_image_twice(clip, rows, tmp_path):
    settings = {"no_duplicates": True, "per_device_train_batch_size": 6, "max_steps": 8}
    trainer = build(InfoNCETrainer, clip, rows, tmp_path, **settings)
    for batch in seen_by(trainer):
        assert len({rows[row]["caption"] for row in batch}) == len({rows[row]["image_id"] for row in batch}) == 6
    assert history(trainer, "same_text_pairs") == history(trainer, "same_image_pairs") == [0] * 8
    off = build(InfoNCETrainer, clip, rows, tmp_path, **settings | {"no_duplicates": False})
    off.train()
    assert max(history(off, "same_text_pairs")) > 0


def test_what_fits_nowhere_is_said_and_counted(clip, rows, tmp_path, caplog):
    common = rows.map(lambda row, index: {"caption": "a dog" if index < 9 else row["caption"]}, with_indices=True)
    settings = {"no_duplicates": True, "per_device_train_batch_size": 6, "max_steps": 4}
    trainer = build(InfoNCETrainer, clip, common, tmp_path, **settings)
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        trainer.train()
    (line,) = [record.message for record in caplog.records if record.name == LOGGER]
    assert line.startswith(f"no_duplicates: in the first epoch, {history(trainer, 'unplaced_rows')[0]} of 24 rows")
    assert history(trainer, "unplaced_rows")[0] >= 5  # four batches


def test_a_resumed_run_goes_on_with_the_next_batch(clip, rows, tmp_path):
    settings = {"no_duplicates": True, "per_device_train_batch_size": 6, "max_steps": 7, "save_steps": 2}
    whole = build(InfoNCETrainer, clip, rows, tmp_path, save_strategy="steps", **settings)
    batches = seen_by(whole)
    resumed = build(InfoNCETrainer, clip, rows, tmp_path, save_strategy="steps", **settings)
    assert seen_by(resumed, resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-6")) == batches[6:]
    assert weights(resumed).keys() == weights(whole).keys()
    assert all((weights(whole)[name] == value).all() for name, value in weights(resumed).items())


def test_neighbors_come_along_as_before(clip, rows, tmp_path):
    near = [[f"photo {(index + step) % 20}" for step in (3, 7)] for index in range(24)]
    brought = rows.add_column("neighbor_ids", near, feature=List(Value("string")))
    settings = {"no_duplicates": True, "per_device_train_batch_size": 3, "num_neighbors": 1, "max_steps": 4}
    for batch in seen_by(build(InfoNCETrainer, clip, brought, tmp_path, **settings)):
        assert len({rows[row]["caption"] for row in batch[::2]}) == 3 and len(batch) == 6


def test_text_alignment_keeps_both_texts_apart(clip, rows, tmp_path):
    generalized = ["a thing", "a toy", "a sign", "a shape"] * 6
    paired = rows.add_column("generalized_caption", generalized)
    settings = {"no_duplicates": True, "per_device_train_batch_size": 3, "max_steps": 5}
    for batch in seen_by(build(TextAlignmentTrainer, clip, paired, tmp_path, **settings)):
        assert len({rows[row]["caption"] for row in batch}) == len({generalized[row] for row in batch}) == 3


@pytest.mark.follows("hfcomp/trainers/hooks.py", "but the dataset is streamed. Remove one of the two.")
@pytest.mark.follows("hfcomp/trainers/grouped.py", "group batches define their own order. Remove it.")
@pytest.mark.follows("hfcomp/trainers/_support/sampling.py", "does not contrast rows. Remove it.")
@pytest.mark.follows("hfcomp/data/sampling/orders.py", "Lower per_device_train_batch_size.")
def test_where_it_means_nothing_it_is_refused(clip, rows, tmp_path):
    def batch_of_refused(said, trainer_class, dataset, advised=None, **settings):
        """The first batch, after the advice was followed."""
        with pytest.raises(ValueError, match=said):
            next(
                iter(
                    build(
                        trainer_class, clip, dataset, tmp_path, no_duplicates=True, **settings
                    ).get_train_dataloader()
                )
            )
        settings |= advised or {"no_duplicates": False}
        return next(iter(build(trainer_class, clip, dataset, tmp_path, **settings).get_train_dataloader()))

    stream, groups = rows.to_iterable_dataset(), add_groups(tiny.pairs(21, ragged=False))
    assert batch_of_refused("no_duplicates=True .*streamed", InfoNCETrainer, stream)
    size = {"groups_per_batch": 2, "pairs_per_group": 4}
    assert batch_of_refused("no_duplicates=True: group batches define their own", ClearGlassTrainer, groups, **size)
    chains = groups.map(lambda row: {"level_4": row["group"] or "none"})
    of_chains = {"chain_columns": ["level_4", "generalized_caption", "caption"]}
    assert batch_of_refused("no_duplicates=True: HierarCapsTrainer", HierarCapsTrainer, chains, **of_chains)
    said = "no_duplicates: .*24 rows .*12 .*per_device_train_batch_size"
    lower = {"no_duplicates": True, "per_device_train_batch_size": 8}
    assert batch_of_refused(said, InfoNCETrainer, rows, lower, per_device_train_batch_size=12)
