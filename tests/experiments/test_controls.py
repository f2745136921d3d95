"""Controls: each trains what its name says, and one that would say nothing is skipped with its reason."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from datasets import concatenate_datasets
from transformers import AutoConfig, AutoProcessor

from hfcomp.data.collators import CompositionalCollator
from hfcomp.data.loading import TrainingRows
from hfcomp.data.negatives import ShuffledNegatives, derangement
from hfcomp.experiments import experiment_config
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.controls import (
    CONTROLS,
    EQUAL_IMAGES,
    INFO_NCE_FORMS,
    NotApplicable,
    Undeclared,
    control_arms,
    declare_info_nce,
    equal_images,
)
from hfcomp.losses import cement_loss
from hfcomp.trainers.c2lip import C2LIPTrainer
from hfcomp.trainers.cement import CementTrainer, margin_function
from hfcomp.trainers.clear_glass import ClearGlassTrainer
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.stages import stage_config
from tests import tiny

ALL = list(CONTROLS)


class SilentCement(CementTrainer):
    """Has terms of its own, of which Cement's word says nothing."""


def method(trainer_class: type = CementTrainer, *, rows: int = 20, **arguments: object) -> Arm:
    return Arm("Method", trainer_class, {"seed": 3, "margin": "adaptive", **arguments}, tiny.pairs(rows), 4)


def cost(images: int, steps: int = 5) -> StageSummary:
    return StageSummary("Method", steps, images, images, 1.0, 1.0, 1.0, 1.0, 0.0)


def choose_controls(names: list[str], run: Arm, *, asked: bool = False) -> tuple[list[str], list[str]]:
    logged: list[str] = []
    return [arm.name for arm in control_arms(names, run, requested=asked, log=logged.append)], logged


def test_recipes_know_all_of_them():
    assert (*CONTROLS, EQUAL_IMAGES) == experiment_config.CONTROLS


def test_all_that_read_negatives_apply_to_cement():
    names, logged = choose_controls(ALL[::-1], method())
    assert names == ["plain", "same-batch", "static-margin", "shuffled"]
    assert logged[:-1] == ["control random-spans is skipped: Method reads no concepts."]


def test_plain_is_info_nce_without_negatives():
    run = CONTROLS["plain"](method(num_negatives=1))
    assert run.trainer_class is InfoNCETrainer and "num_negatives" not in run.arguments
    assert run.rows is not None and run.batch_size == 4


def test_same_batch_is_the_method_without_its_margin():
    own = method()
    run = CONTROLS["same-batch"](own)
    assert run == dataclasses.replace(own, name="same-batch", arguments={**own.arguments, "margin": "none"})


@pytest.mark.parametrize("margin", ["adaptive", "inverse"])
def test_a_static_margin_is_the_mean_of_the_methods_own_as_the_loss_counts_it(clip, margin):
    """Rows of the set lack a rating, a negative caption or a negative image, the last one both negatives."""
    pairs, logged = tiny.pairs(20, negatives=1), []
    bare = pairs.select([13])  # whose negative image and negative caption are missing
    own = method(margin=margin, margin_threshold=3.0)
    own = dataclasses.replace(own, rows=concatenate_datasets([pairs.select(range(2, 20)), bare]))
    (run,) = control_arms(["static-margin"], own, requested=True, log=logged.append)
    arguments = {**own.arguments, "margin": "static", "static_margin": run.arguments["static_margin"]}
    assert dataclasses.replace(run, description="") == dataclasses.replace(
        own, name="static-margin", arguments=arguments
    )
    in_loss = {
        name: _margins_in_loss(dataclasses.replace(own, arguments=values), clip)
        for name, values in {"own": own.arguments, "static": arguments}.items()
    }
    assert arguments["static_margin"] == pytest.approx(in_loss["own"]) == pytest.approx(in_loss["static"])
    assert abs(in_loss["own"]) > 0.1
    assert run.description.endswith(f"Method's own margins ({in_loss['own']:.2f} with seed 3)")
    assert logged == [f"static-margin: {run.description}"]


def _margins_in_loss(arm: Arm, clip: str) -> float:
    """The margins that `cement_loss` logs for all rows in one batch."""
    config = stage_config(arm.trainer_class, Path("unused"), arm.arguments, arm.batch_size)
    collator = CompositionalCollator(
        AutoProcessor.from_pretrained(clip), AutoConfig.from_pretrained(clip), num_negatives=1, negative_image=True
    )
    columns = ["image", "caption", "negative_captions", "negative_image", "negative_concreteness"]
    batch, size = collator(_all(TrainingRows(arm.rows, columns))), len(arm.rows)
    units = [torch.nn.functional.normalize(torch.randn(size, 4), dim=1) for _ in range(4)]
    masks = {name: batch[name].reshape(size) for name in ("negative_image_mask", "negative_text_mask")}
    assert not (masks["negative_image_mask"] | masks["negative_text_mask"]).all()
    margin = margin_function(config)(batch["negative_concreteness"][:, 0])
    return cement_loss(*units, logit_scale=torch.tensor(10.0), margin=margin, **masks)[1]["margin"].item()


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (method(margin="static"), "Method has the margin static, which does not depend on ratings."),
        (method(margin="none"), "Method has the margin none, which does not depend on ratings."),
        (method(SilentCement), "Method has no margin that depends on ratings."),
        (
            method(draw_captions=True),
            "the mean of Method's margin is unknown, because captions are drawn every epoch.",
        ),
        (
            dataclasses.replace(method(), rows=method().rows.to_iterable_dataset()),
            "the mean of Method's margin needs all rows, but the training set is streamed.",
        ),
        (dataclasses.replace(method(), rows=tiny.pairs(20).select([])), "no row has a negative."),
        (
            dataclasses.replace(method(), rows=tiny.pairs(20).remove_columns("negative_concreteness")),
            "the training set has no negative_concreteness.",
        ),
    ],
)
def test_a_static_margin_is_skipped_where_the_mean_of_the_methods_own_is_not_known(run, reason):
    assert choose_controls(["static-margin"], run, asked=True) == ([], [f"control static-margin is skipped: {reason}"])


def test_an_objective_that_is_info_nce_has_no_same_batch():
    names, logged = choose_controls(["same-batch"], method(InfoNCETrainer, num_negatives=1), asked=True)
    assert not names
    assert logged == ["control same-batch is skipped: InfoNCETrainer already is InfoNCE on its own batch."]


def test_an_objective_that_says_nothing_is_skipped_by_default_and_refused_when_asked_for():
    names, (line, *_) = choose_controls(ALL, method(SilentCement))
    assert names == ["plain", "shuffled"]
    assert line.startswith("control same-batch is skipped: SilentCement")
    with pytest.raises(Undeclared, match=r"same-batch: .*declare_info_nce\(SilentCement, .*--controls"):
        choose_controls(ALL, method(SilentCement), asked=True)


def test_a_method_of_phrases_is_read_against_plain_and_other_spans():
    own = dataclasses.replace(method(C2LIPTrainer), rows=tiny.pairs(20, concepts=True))
    names, logged = choose_controls(ALL, own)
    assert names == ["plain", "random-spans"]
    assert logged == [
        "control same-batch is skipped: Method reads no negatives, so InfoNCE on its batch equals plain.",
        "control static-margin is skipped: Method has no margin that depends on ratings.",
        "control shuffled is skipped: Method reads no negatives.",
    ]
    silent = dataclasses.replace(own, arguments={**own.arguments, "max_concepts": 0})
    assert (
        choose_controls(["random-spans"], silent)[0]
        == choose_controls(["random-spans"], method(C2LIPTrainer))[0]
        == []
    )


def test_group_batches_are_not_those_of_plain():
    names, _ = choose_controls(["plain", "same-batch"], method(ClearGlassTrainer, grouping="pairwise"))
    assert names == ["plain", "same-batch"]
    assert CONTROLS["same-batch"](method(ClearGlassTrainer)).arguments["grouping"] == "none"


class OtherInfoNCE(CementTrainer):
    """No setting of it is InfoNCE, but another class on its batch is."""


def test_another_class_is_info_nce_on_the_same_batch(monkeypatch):
    monkeypatch.setitem(INFO_NCE_FORMS, OtherInfoNCE, None)  # removed again
    declare_info_nce(OtherInfoNCE, by=InfoNCETrainer, sigmoid=False)
    own = method(OtherInfoNCE, num_negatives=2)
    run = CONTROLS["same-batch"](own)
    assert (run.name, run.trainer_class) == ("same-batch", InfoNCETrainer)
    assert run.arguments == {**own.arguments, "sigmoid": False} and run.rows is own.rows
    with pytest.raises(Undeclared):
        CONTROLS["same-batch"](method(type("Silent", (OtherInfoNCE,), {})))


def test_neighbors_are_no_part_of_plain_and_are_shuffled():
    neg_clip = method(InfoNCETrainer, num_negatives=1, draw_negatives=True, num_neighbors=1)
    assert not {"num_negatives", "draw_negatives", "num_neighbors"} & set(CONTROLS["plain"](neg_clip).arguments)
    bare = method(InfoNCETrainer, num_neighbors=1)
    rows = bare.rows.select_columns(["image", "caption", "image_id"])
    assert choose_controls(["shuffled"], dataclasses.replace(bare, rows=rows))[0] == []
    rows = rows.add_column("neighbor_ids", [["tiny-0"]] * 20)
    assert choose_controls(["shuffled"], dataclasses.replace(bare, rows=rows))[0] == ["shuffled"]


def test_a_method_without_negatives_has_nothing_to_shuffle():
    assert choose_controls(["shuffled"], method(InfoNCETrainer))[1] == [
        "control shuffled is skipped: Method reads no negatives."
    ]
    assert choose_controls(["shuffled"], method(InfoNCETrainer, num_negatives=1))[0] == ["shuffled"]


def test_shuffled_rows_keep_their_positive_and_have_all_negatives_of_one_other_row():
    """Some of the set's negative images are missing, and move too; likewise ids of neighbors."""
    own = method()
    own = dataclasses.replace(own, rows=own.rows.add_column("neighbor_ids", [[f"tiny-{row}"] for row in range(20)]))
    run = CONTROLS["shuffled"](own)
    assert (run.trainer_class, run.arguments, run.batch_size) == (own.trainer_class, own.arguments, own.batch_size)
    partners = derangement(range(20), 3)
    columns = ["image", "caption", "negative_captions", "negative_image", "negative_kinds", "negative_concreteness"]
    columns += ["neighbor_ids", "image_id"]
    before, after = _all(TrainingRows(own.rows, columns)), _all(run.rows)
    for index, row in enumerate(after):
        other = before[partners[index]]
        assert row["row"] == index
        for column, value in row.items():
            if column != "row":
                assert value == (other if column.startswith(("negative_", "neighbor_")) else before[index])[column]
    assert {row["negative_image"] is None for row in after} == {True, False}
    assert set(columns) <= set(after[0])
    assert run.rows.column("neighbor_ids") == [[f"tiny-{row}"] for row in partners]
    assert run.rows.column("image_id") == [f"tiny-{row}" for row in range(20)]


def _all(rows: TrainingRows) -> list[dict]:
    return rows.__getitems__(list(range(len(rows))))


def test_equal_images_takes_the_batch_that_encodes_as_many():
    run = equal_images(method(max_steps=99), cost(images=5 * 7))
    assert run.trainer_class is InfoNCETrainer
    assert run.batch_size == 7 and run.arguments["max_steps"] == 5


def test_equal_images_counts_accumulated_batches_and_divides_by_the_processes(monkeypatch):
    own = method(gradient_accumulation_steps=2)
    assert equal_images(own, cost(images=5 * 2 * 8)).batch_size == 8
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert equal_images(own, cost(images=5 * 2 * 11)).batch_size == 12


def test_equal_images_of_rows_with_neighbors_is_a_batch_of_both(clip, tmp_path):
    own = method(InfoNCETrainer, num_neighbors=1, use_cpu=True, report_to="none", save_strategy="no", max_steps=2)
    near = [[f"tiny-{(row + 1) % 20}"] for row in range(20)]
    own = dataclasses.replace(own, rows=own.rows.add_column("neighbor_ids", near))
    own.arguments["disable_tqdm"] = True
    paid = own.train(clip, tmp_path / "method")
    assert (paid.steps, paid.images) == (2, 16)
    assert equal_images(own, paid).batch_size == 8


@pytest.mark.parametrize(("images", "reason"), [(5 * 4, "no more images than plain"), (5 * 21, "21 rows ")])
def test_equal_images_is_skipped_where_it_cannot_be(images, reason):
    with pytest.raises(NotApplicable, match=reason):
        equal_images(method(), cost(images))


def test_shuffled_rows_can_be_trained_on(clip, tmp_path):
    run = dataclasses.replace(
        CONTROLS["shuffled"](method()),
        arguments={"max_steps": 1, "use_cpu": True, "report_to": "none", "save_strategy": "no", "disable_tqdm": True},
    )
    assert isinstance(run.rows, ShuffledNegatives)
    summary = run.train(clip, tmp_path / "shuffled")
    assert (summary.name, summary.steps, summary.texts) == ("shuffled", 1, 8)
