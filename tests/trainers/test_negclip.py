"""NegCLIP as settings of InfoNCE: hard images as further rows, negatives drawn in each epoch; about 6 seconds."""

from __future__ import annotations

import logging

import pytest
import torch
from torch.nn.functional import cross_entropy

from hfcomp.data.loading import TrainingRows
from hfcomp.distributed import sum_over_processes
from hfcomp.losses import info_nce_loss
from hfcomp.trainers._support.gathering import gather_over_processes
from hfcomp.trainers.info_nce import InfoNCEConfig, InfoNCETrainer
from tests import tiny
from tests.trainers.runs import assert_same_weights, build, history, weights

ROWS = 24
NEGCLIP = {"num_negatives": 1, "draw_negatives": True, "num_neighbors": 1, "per_device_train_batch_size": 4}


@pytest.fixture(scope="module")
def near():
    """Rows in a ring whose neighbors are the next three."""
    ids = [[f"tiny-{(row + step) % ROWS}" for step in (1, 2, 3)] for row in range(ROWS)]
    return tiny.pairs(ROWS, negatives=3, ragged=False).add_column("neighbor_ids", ids)


class Recorder(InfoNCETrainer):
    """Keeps the rows of each batch, and which negative each row came with."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.batches = []

    def compute_loss(self, model, inputs, *args, **kwargs):
        if self.model.training:
            self.batches.append((inputs["row"].tolist(), inputs["negative_input_ids"].sum(dim=1).tolist()))
        return super().compute_loss(model, inputs, *args, **kwargs)


def build_recorder(clip, dataset, folder, **settings) -> Recorder:
    return build(Recorder, clip, dataset, folder, **{**NEGCLIP, "max_steps": 12, **settings})


def beside(rows: list[int]) -> dict[int, int]:
    """The rows that each row brought along."""
    return dict(zip(rows[::2], rows[1::2], strict=True))


def negatives(batches: list) -> dict[int, int]:
    """The negative that each row came with."""
    return {row: negative for rows, texts in batches for row, negative in zip(rows, texts, strict=True)}


def negclip_loss(image, text, negative_text, scale):
    """As the authors write it: 2B images against the 2B captions and the 2B negatives, 2B captions against images."""
    logits = scale * image @ torch.cat([text, negative_text]).T
    target = torch.arange(len(image))
    return (cross_entropy(logits, target) + cross_entropy(logits[:, : len(text)].T, target)) / 2


def test_the_loss_of_a_step_is_the_authors_on_the_doubled_batch(clip, near, tmp_path):
    trainer = build(InfoNCETrainer, clip, near, tmp_path, **NEGCLIP)
    batch = next(iter(trainer.get_train_dataloader()))
    rows = batch["row"].tolist()
    assert len(rows) == 8 and all((other - row) % ROWS in (1, 2, 3) for row, other in beside(rows).items())
    trainer.model.train()
    f = trainer.gather_features(trainer.model, batch)
    assert f.image_embeds.shape[0] == f.text_embeds.shape[0] == 8 and f.negative_text_embeds.shape[:2] == (8, 1)
    loss = trainer.compute_loss(trainer.model, batch)
    torch.testing.assert_close(
        loss, negclip_loss(f.image_embeds, f.text_embeds, f.negative_text_embeds[:, 0], f.logit_scale)
    )


def test_features_of_processes_are_gathered_as_any_others(clip, near, tmp_path, monkeypatch):
    """The halves of a global batch, as two processes have them, add up to its loss."""
    trainer = build(InfoNCETrainer, clip, near, tmp_path, **NEGCLIP)
    f = trainer.gather_features(trainer.model, next(iter(trainer.get_train_dataloader())))
    gathered = gather_over_processes(f, [8])
    assert gathered.rows == slice(0, 8)
    parts = [
        info_nce_loss(
            f.image_embeds,
            f.text_embeds,
            logit_scale=f.logit_scale,
            negative_text=f.negative_text_embeds,
            negative_mask=f.negative_text_mask,
            rows=rows,
        )[0]
        for rows in (slice(0, 4), slice(4, 8))
    ]
    whole = negclip_loss(f.image_embeds, f.text_embeds, f.negative_text_embeds[:, 0], f.logit_scale)
    torch.testing.assert_close(sum_over_processes(sum(parts)), whole.detach())


def test_an_epoch_reads_every_row_once_with_others_beside_it(clip, near, tmp_path):
    trainer = build_recorder(clip, near, tmp_path)
    trainer.train()
    assert len(trainer.batches) == 12 and trainer.state.epoch == 2
    epochs = [trainer.batches[:6], trainer.batches[6:]]
    for epoch in epochs:
        assert sorted(row for rows, _ in epoch for row in rows[::2]) == list(range(ROWS))
        assert all(len(set(rows)) == 8 for rows, _ in epoch)
    brought = [{row: other for rows, _ in epoch for row, other in beside(rows).items()} for epoch in epochs]
    assert brought[0] != brought[1]
    drawn = [negatives(epoch) for epoch in epochs]
    assert any(drawn[0][row] != drawn[1][row] for row in range(ROWS))
    assert sum(history(trainer, "images_encoded")) == 12 * 8
    assert sum(history(trainer, "texts_encoded")) == 12 * 16
    assert 0 <= history(trainer, "unrelated_neighbor_share")[-1] < 0.5


def test_the_rows_are_those_of_plain_in_the_same_order(clip, near, tmp_path):
    trainer = build_recorder(clip, near, tmp_path, max_steps=7)
    plain = build_recorder(clip, near, tmp_path, draw_negatives=False, num_neighbors=0, max_steps=7)
    for instance in (trainer, plain):
        instance.train()
    assert [rows[::2] for rows, _ in trainer.batches] == [rows for rows, _ in plain.batches]


@pytest.mark.parametrize("workers", [{}, {"dataloader_num_workers": 2, "dataloader_persistent_workers": True}])
def test_a_run_that_goes_on_within_an_epoch_draws_what_it_would_have_drawn(clip, near, tmp_path, workers):
    whole = build_recorder(clip, near, tmp_path, save_strategy="steps", save_steps=8, max_steps=10)
    whole.train()
    later = build_recorder(clip, near, tmp_path, max_steps=10, **workers)
    later.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-8"))
    assert later.batches == whole.batches[8:]
    assert_same_weights(weights(later), weights(whole))


def test_on_several_processes_the_order_hears_of_its_epoch_within_one(clip, near, tmp_path, monkeypatch):
    """The loader of the rest of an epoch hides it behind two samplers."""
    from accelerate import skip_first_batches
    from accelerate.data_loader import BatchSamplerShard

    trainer = build_recorder(clip, near, tmp_path, per_device_train_batch_size=2)
    prepare = trainer.accelerator.prepare

    def prepare_for_two(loader):
        prepared = prepare(loader)
        shard = BatchSamplerShard(prepared.batch_sampler, 2, 1)
        object.__setattr__(prepared, "batch_sampler", shard)
        return prepared

    monkeypatch.setattr(trainer.accelerator, "prepare", prepare_for_two)
    loader = trainer.get_train_dataloader()
    skip_first_batches(loader, 1).set_epoch(5)
    assert (trainer.neighbor_order.epoch, trainer.neighbor_order.order.epoch) == (5, 5)


def test_evaluation_sets_bring_nothing_along_and_keep_their_first_negatives(clip, near, tmp_path):
    trainer = build(InfoNCETrainer, clip, near, tmp_path, eval_dataset=near, **NEGCLIP)
    batch = next(iter(trainer.get_eval_dataloader()))
    assert batch["row"].tolist() == list(range(8))
    assert type(trainer.eval_dataset) is TrainingRows
    without = near.remove_columns(["neighbor_ids", "image_id"])
    plain = build(InfoNCETrainer, clip, near, tmp_path, num_negatives=1, eval_dataset=without).evaluate()
    metrics = build(InfoNCETrainer, clip, near, tmp_path, eval_dataset=without, **NEGCLIP).evaluate()
    assert metrics["eval_loss"] == plain["eval_loss"]


def test_negatives_are_drawn_without_neighbors_and_neighbors_without_negatives(clip, near, tmp_path):
    drawn = build_recorder(clip, near, tmp_path, num_neighbors=0)
    drawn.train()
    assert all(len(rows) == 4 for rows, _ in drawn.batches)
    first, second = negatives(drawn.batches[:6]), negatives(drawn.batches[6:])
    assert first.keys() == second.keys() and first != second
    settings = {"num_neighbors": 2, "per_device_train_batch_size": 4, "max_steps": 1}
    trainer = build(InfoNCETrainer, clip, near, tmp_path, **settings)
    trainer.train()
    assert history(trainer, "images_encoded") == history(trainer, "texts_encoded") == [12]


def test_the_sigmoid_loss_brings_neighbors_along_too(siglip, near, tmp_path):
    settings = {"num_neighbors": 1, "per_device_train_batch_size": 4, "max_steps": 1}
    trainer = build(InfoNCETrainer, siglip, near, tmp_path, **settings)
    trainer.train()
    assert history(trainer, "images_encoded") == [8]


def test_own_names_of_columns_are_renamed(clip, near, tmp_path):
    renamed = near.rename_columns({"neighbor_ids": "similar", "image_id": "photo"})
    names = {"neighbor_ids": "similar", "image_id": "photo"}
    trainer = build(InfoNCETrainer, clip, renamed, tmp_path, column_names=names, **NEGCLIP)
    assert len(next(iter(trainer.get_train_dataloader()))["row"]) == 8


def test_what_is_missing_is_told_at_the_start(clip, near, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    ids = [["gone"] if row < 5 else ids for row, ids in enumerate(near["neighbor_ids"])]
    dataset = near.remove_columns("neighbor_ids").add_column("neighbor_ids", ids)
    with caplog.at_level(logging.WARNING):
        build(InfoNCETrainer, clip, dataset, tmp_path, **NEGCLIP)
    assert "5 of 24 rows have no neighbor" in caplog.text
    assert "5 entries of neighbor_ids are not image_id values" in caplog.text


@pytest.mark.parametrize("missing", ["neighbor_ids", "image_id"])
def test_a_missing_column_is_named(clip, near, tmp_path, missing):
    with pytest.raises(ValueError, match=f"needs .*column '{missing}'"):
        build(InfoNCETrainer, clip, near.remove_columns(missing), tmp_path, **NEGCLIP)
    rows = TrainingRows(near, ["image", "caption", "negative_captions"])
    with pytest.raises(ValueError, match="no column 'neighbor_ids'; .*: image, caption"):
        build(InfoNCETrainer, clip, rows, tmp_path, **NEGCLIP)


def test_wrong_settings_are_refused(clip, near, tmp_path):
    with pytest.raises(ValueError, match="num_neighbors: found -1,.* 0 "):
        InfoNCEConfig(output_dir=str(tmp_path), num_neighbors=-1)
    with pytest.raises(ValueError, match="draw_negatives=True .*num_negatives.* 0"):
        InfoNCEConfig(output_dir=str(tmp_path), draw_negatives=True)
    trainer = build(InfoNCETrainer, clip, near, tmp_path, **{**NEGCLIP, "per_device_train_batch_size": 13})
    with pytest.raises(ValueError, match="24 images, .* 26 .*13 rows.*train_batch_size .* 12 "):
        trainer.get_train_dataloader()
    with pytest.raises(ValueError, match="num_neighbors or draw_negatives.*'random'"):
        build(InfoNCETrainer, clip, near, tmp_path, train_sampling_strategy="group_by_length", **NEGCLIP)
