"""One process with a batch of 8 and two processes with 4 each find the same, through the trainers."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from hfcomp.modeling import OBJECTIVE_STATE_FILE, load_backbone
from hfcomp.trainers._support.reference_text import FOLDER
from tests import tolerances
from tests.distributed.cases import CASES, EVALUATED, GLOBAL_BATCH, LOSSES, NAN_STEP, STEPS
from tests.distributed.compare import (
    assert_same_batch,
    assert_same_embeddings,
    assert_same_log,
    assert_same_tensors,
    assert_slices_add_up,
    scale_of,
    weight_tolerances,
)
from tests.distributed.launch import Result, Results, launch
from tests.distributed.sharded_cases import SHARDED_ONLY

MARGIN = "objective_state.margin.value"
AHNPL = {"loss_visual_negative", "loss_positive_margin", "active_positive_margins", "margin", "threshold_swap_att"}
C2LIP = {"loss_contrastive", "loss_concept", "loss_cross_attended"}
SCALARS = {
    "info_nce": {"logit_scale"},
    "info_nce_negatives": {"logit_scale"},
    "info_nce_siglip": {"logit_scale", "logit_bias"},
    "info_nce_siglip2": {"logit_scale", "logit_bias"},
    "cement": {"logit_scale"},
    "cement_siglip": {"logit_scale"},
    "dcl": {"logit_scale"},
    "hard_negatives": {"logit_scale"},
    "ce_clip": {"logit_scale"},
    "triplet_clip": {"logit_scale"},
    "streamed": {"logit_scale"},
    "drawn_captions": {"logit_scale"},
    "ahnpl": {"logit_scale", MARGIN},
    "ahnpl_live": {"logit_scale", MARGIN},
    "c2lip": {"logit_scale", "logit_bias"},
    "c2lip_tokens": {"logit_scale", "logit_bias"},
    "c2lip_clip": {"logit_scale"},
}
LOGGED = {
    "info_nce": {"accuracy_image_to_text", "accuracy_text_to_image"},
    "info_nce_negatives": {"accuracy_image_to_text", "accuracy_text_to_image", "hard_negative_accuracy"},
    "info_nce_siglip": {"accuracy_image_to_text", "positive_accuracy", "logit_bias"},
    "info_nce_siglip2": {"accuracy_image_to_text", "positive_accuracy", "logit_bias"},
    "cement": {"hard_negative_accuracy_image_to_text", "gradient_hard_negative", "margin"},
    "cement_siglip": {"hard_negative_accuracy_image_to_text", "gradient_hard_negative", "margin"},
    "dcl": {"accuracy_image_to_text", "hard_negative_accuracy"},
    "hard_negatives": {"accuracy_image_to_text", "hard_negative_accuracy"},
    "ce_clip": {"hard_negative_accuracy", "loss_negative_margin", "loss_intra_modal", "threshold_swap_att"},
    "triplet_clip": {"hard_negative_accuracy", "loss_negative_image_to_text"},
    "streamed": {"accuracy_image_to_text"},
    "drawn_captions": {"accuracy_image_to_text", "hard_negative_accuracy"},
    "ahnpl": AHNPL,
    "ahnpl_live": AHNPL,
    "c2lip": C2LIP | {"concept_positive_accuracy", "cross_attended_positive_accuracy"},
    "c2lip_tokens": C2LIP | {"concept_positive_accuracy", "shortened_concepts"},
    "c2lip_clip": C2LIP | {"accuracy_image_to_concept", "accuracy_cross_attended", "shortened_concepts"},
}


# The trainer of each is run by default with another model, mini-batches, or one loss more.
VARIANTS = {
    *("info_nce", "info_nce_siglip2", "cement_siglip", "c2lip", "c2lip_clip"),
    *("clear_glass_centroid", "clear_glass_pairs", "adapted_pooling", "nan_at_the_end"),
}


def cases(*names: str) -> list:
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in VARIANTS)) for name in names]


@pytest.fixture(scope="module")
def two(models, tmp_path_factory, request) -> Results:
    """All that is launched at once: of the variants if a slow test of this file is run."""
    mine = [item for item in request.session.items if item.path == request.path]
    left_out = {"uneven", *SHARDED_ONLY, *(() if any(map(is_slow, mine)) else VARIANTS)}
    return launch(2, models, tmp_path_factory.mktemp("two"), [name for name in CASES if name not in left_out])


def is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def assert_same_training(results: list[Result], expected: list[Result]) -> None:
    """Both processes and the single one: start, first gradients, weights after all steps, lines of the log."""
    (single,) = expected
    assert [result.facts["world_size"] for result in results] == [2, 2]
    assert single.facts["world_size"] == 1
    scale = scale_of(single)
    gradients, weights = tolerances.gradients(single.part("gradient"), scale), weight_tolerances(single, scale)
    for result in results:
        for group, allowed in {"before": 0.0, "gradient": gradients, "weight": weights}.items():
            assert_same_tensors(result.part(group), single.part(group), allowed)
        assert result.facts["trainable"] == single.facts["trainable"]
        assert set(result.part("gradient")) == set(single.facts["trainable"])
    assert_same_log(results[0].facts["log"], single.facts["log"], scale)
    assert_in_step(results)


def assert_in_step(results: list[Result]) -> None:
    """The weights of both processes are equal to the last bit."""
    first, second = (result.part("weight") for result in results)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", cases("c2lip", "c2lip_tokens", "c2lip_clip"))
def test_concepts_are_evaluated_in_batches_that_end_early(two, one, name):
    losses = [line["eval_loss"] for line in one[name][0].facts["log"] if "eval_loss" in line]
    assert len(losses) == 2
    for result in two[name]:
        eval_losses = [line["eval_loss"] for line in result.facts["log"] if "eval_loss" in line]
        assert eval_losses == pytest.approx(losses, rel=tolerances.gradient(), abs=tolerances.loss())


def test_a_process_whose_images_have_no_concepts(two, one):
    (single,) = one["uneven_concepts"]
    assert [(part >= 0).sum().item() for part in single.tensors["field/concept_image_index"].chunk(2)] == [4, 0]
    assert_same_batch(two["uneven_concepts"], single)


def moved_weights(result: Result) -> set[str]:
    before = result.part("before")
    return {name for name, weight in result.part("weight").items() if not torch.equal(weight, before[name])}


@pytest.mark.parametrize("name", cases(*SCALARS))
def test_two_processes_train_as_one(two, one, name):
    assert_same_training(two[name], one[name])


@pytest.mark.parametrize("name", cases(*SCALARS))
def test_scale_and_bias_get_the_gradient_of_the_global_batch(two, one, name):
    gradients = one[name][0].part("gradient")
    allowed = tolerances.gradients(gradients, scale_of(one[name][0]))
    scalars = {scalar if "." in scalar else f"backbone.{scalar}" for scalar in SCALARS[name]}
    assert {key for key, value in gradients.items() if value.numel() == 1} == scalars
    for result in two[name]:
        for scalar in scalars:
            assert abs(gradients[scalar].item()) > 10 * allowed[scalar]
            assert abs(result.tensors[f"gradient/{scalar}"] - gradients[scalar]) <= allowed[scalar]


@pytest.mark.parametrize("name", cases(*SCALARS))
def test_the_log_holds_the_global_batch(two, one, name):
    lines, others = ([line for line in one_of[name][0].facts["log"] if "loss" in line] for one_of in (two, one))
    assert [line["step"] for line in lines] == [2, 4]
    for line, other in zip(lines, others, strict=True):
        assert LOGGED[name] <= line.keys()
        assert line["images_encoded"] == other["images_encoded"] >= 2 * GLOBAL_BATCH
        assert line["texts_encoded"] == other["texts_encoded"] >= 2 * GLOBAL_BATCH
        assert line["truncated_text_share"] == other["truncated_text_share"] > 0
        if name != "info_nce_siglip2":  # whose set has no image_id
            assert line["same_image_pairs"] == other["same_image_pairs"] > 0
        assert line["same_text_pairs"] == other["same_text_pairs"]
        assert line["same_text_pairs"] > 0 or name not in ("info_nce", "info_nce_siglip", "cement", "triplet_clip")
        assert not line["same_text_pairs"] or name != "info_nce_siglip2"  # no_duplicates
        assert line.get("same_text_negatives") == other.get("same_text_negatives")
        assert line.get("same_text_negatives", 0) > 0 or name not in ("info_nce_negatives", "dcl", "ce_clip")
    # the loss is that of one contrast among 8 rows, not the mean of two among 4
    assert lines[0]["loss"] == pytest.approx(others[0]["loss"], rel=0, abs=tolerances.loss())


def test_a_resumed_run_draws_the_captions_of_the_whole_one(two, one):
    for result in (*two["drawn_captions_resumed"], *one["drawn_captions_resumed"]):
        whole, resumed = result.part("whole"), result.part("resumed")
        assert whole and all(torch.equal(whole[name], resumed[name]) for name in whole)
        assert result.facts["starts"] == one["drawn_captions_resumed"][0].facts["starts"] != []


def test_a_resumed_stream_goes_on_with_the_next_rows(two, one):
    for result in (*two["streamed_resumed"], *one["streamed_resumed"]):
        whole, seen = result.part("from 0"), result.facts["seen"]
        assert len(seen["0"]) == 4 and len({str(batch) for batch in seen["0"]}) == 4
        for first in (1, 3):
            resumed = result.part(f"from {first}")
            assert seen[str(first)] == seen["0"][first:]
            assert whole and all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_metric_without_items_is_absent_on_all_processes(two, one):
    assert_same_training(two["lone_negative"], one["lone_negative"])
    lines = [line for line in one["lone_negative"][0].facts["log"] if "loss" in line]
    assert [line["negative_images"] for line in lines].count(1) == 2
    for line in lines:
        there = line["negative_images"] > 0
        assert all((name in line) == there for name in ("margin", "hard_negative_accuracy_image_to_text"))


@pytest.mark.parametrize("name", ["replay", "replay_streamed", "replay_groups"])
def test_replay_rows_are_those_of_the_global_batch(two, one, name):
    assert_same_training(two[name], one[name])
    added = {"replay": 4, "replay_streamed": 8, "replay_groups": 8}[name]
    for line in one[name][0].facts["log"]:
        assert "loss" not in line or line["images_encoded"] == 2 * (GLOBAL_BATCH + added)


def test_chains_of_texts_are_those_of_the_global_batch(two, one):
    assert_same_training(two["hierarcaps"], one["hierarcaps"])


@pytest.mark.parametrize("name", cases("clear_glass", "clear_glass_centroid", "clear_glass_pairs", "text_alignment"))
def test_groups_and_pairs_of_texts_are_those_of_the_global_batch(two, one, name):
    assert_same_training(two[name], one[name])


def test_a_run_on_groups_goes_on_within_an_epoch(two, one):
    (single,), (first, second) = one["clear_glass_resumed"], two["clear_glass_resumed"]
    assert len(single.facts["rows"]) == 2
    assert [a + b for a, b in zip(first.facts["rows"], second.facts["rows"], strict=True)] == single.facts["rows"]
    for result in (single, first, second):
        whole, resumed = result.part("whole"), result.part("resumed")
        assert all(torch.equal(resumed[key], value) for key, value in whole.items())


def test_groups_that_cannot_be_shared_out_are_refused(two, one):
    assert one["three_groups"][0].facts["error"] == "none"
    for result in two["three_groups"]:
        assert result.facts["error"].startswith("groups_per_batch=3 cannot be divided among 2 processes")


def test_ragged_rows_are_spread_unevenly(one, two):
    """Else the comparison of Cement would not see a wrong count of anchors."""
    encoded = [line["images_encoded"] for line in one["cement"][0].facts["log"] if "loss" in line]
    assert all(2 * GLOBAL_BATCH < number < 4 * GLOBAL_BATCH for number in encoded)


def test_images_of_several_tensors_train_as_on_one_process(two, one):
    assert_same_training(two["naflex"], one["naflex"])


def test_mini_batches_change_nothing(two, one):
    assert_same_training(two["mini_batches"], one["cement"])


@pytest.mark.parametrize("name", cases("adapted", "adapted_pooling"))
def test_adapters_and_averages_of_weights_are_those_of_one_process(two, one, name):
    assert_same_training(two[name], one[name])
    trained = {parameter for parameter in one[name][0].facts["trainable"] if ".lora_" in parameter}
    assert trained == {parameter for parameter in moved_weights(one[name][0]) if ".lora_" in parameter}
    scalars = SCALARS["cement" if name == "adapted" else "info_nce_siglip"]
    assert len(moved_weights(one[name][0])) == len(trained) + len(scalars)


def test_an_adapter_that_two_processes_trained_is_whole(two):
    first, second = two["adapted"]
    saved = dict(load_backbone(first.folder / "saved").named_parameters())
    for name, value in second.part("weight").items():
        assert torch.equal(saved[name.removeprefix("backbone.")], value)


def test_an_evaluation_before_training_changes_nothing(two, one):
    assert_same_training(two["after_evaluation"], one["cement"])


def test_accumulation(two, one):
    assert_same_training(two["accumulation"], one["accumulation"])
    assert one["accumulation"][0].facts["log"][0] != one["cement"][0].facts["log"][0]


def test_a_frozen_tower_does_not_stop_two_processes(two, one):
    assert_same_training(two["frozen_images"], one["frozen_images"])
    for result in two["frozen_images"]:
        names = set(result.facts["trainable"])
        assert moved_weights(result) == names
        assert not [name for name in names if "vision" in name or "visual" in name]
        assert {"backbone.text_projection.weight", "backbone.logit_scale"} <= names


def test_weights_frozen_by_hand_do_not_stop_two_processes(two, one):
    assert_same_training(two["frozen_by_hand"], one["frozen_by_hand"])
    for result in two["frozen_by_hand"]:
        names = set(result.facts["trainable"])
        assert moved_weights(result) == names
        assert names == {name for name in result.part("weight") if "vision_model" in name}


@pytest.mark.slow
def test_an_unused_bias_is_frozen(two):
    for result in two["cement_siglip"]:
        assert "backbone.logit_bias" in result.part("weight")
        assert "backbone.logit_bias" not in result.facts["trainable"]
        assert "backbone.logit_bias" not in moved_weights(result)
        assert moved_weights(result) == set(result.facts["trainable"])


def test_an_own_objective_learns_the_same_on_two_processes(two, one):
    assert_same_training(two["own_objective"], one["own_objective"])
    name = "objective_state.offset.value"
    first, second = two["own_objective"]
    assert name in moved_weights(first)
    assert torch.equal(first.tensors[f"weight/{name}"], second.tensors[f"weight/{name}"])
    (single,) = one["own_objective"]
    allowed = weight_tolerances(single, scale_of(single))[name]
    assert abs(first.tensors[f"weight/{name}"] - single.tensors[f"weight/{name}"]) <= allowed
    # logged as the loss saw it, before the last step
    assert 0.5 > first.facts["log"][1]["offset"] > first.tensors[f"weight/{name}"].item()


@pytest.mark.parametrize("name", ["ce_clip", "ahnpl", "ahnpl_live"])
def test_thresholds_are_those_of_the_global_batch_on_both_processes(two, one, name):
    (single,), (first, second) = one[name], two[name]
    assert single.tensors["threshold"].any()
    assert torch.equal(first.tensors["threshold"], second.tensors["threshold"])
    # a mean of differences of two cosines
    allowed = {"rtol": tolerances.gradient(), "atol": 2 * tolerances.cosine()}
    torch.testing.assert_close(first.tensors["threshold"], single.tensors["threshold"], **allowed)
    saved = load_file(first.folder / "saved" / OBJECTIVE_STATE_FILE)
    assert torch.equal(saved["objective_state.threshold.value"], first.tensors["threshold"])


@pytest.mark.parametrize("name", ["ahnpl", "ahnpl_live"])
def test_the_margin_is_learned_alike_on_both_processes(two, one, name):
    (single,), (first, second) = one[name], two[name]
    values = [result.tensors[f"weight/{MARGIN}"].item() for result in (single, first, second)]
    allowed = weight_tolerances(single, scale_of(single))[MARGIN]
    assert values[1] == values[2] == pytest.approx(values[0], rel=0, abs=allowed)
    assert values[0] < first.facts["log"][1]["margin"] < first.facts["log"][0]["margin"] < 0.9
    saved = load_file(first.folder / "saved" / OBJECTIVE_STATE_FILE)
    assert saved[MARGIN].item() == values[1]


def test_processes_share_the_encoding_before_training(two, one):
    (single,) = one["ahnpl"]
    assert single.facts["encoded"] == 60 and single.tensors["features"].shape == (20, 3, 16)
    for result in two["ahnpl"]:
        assert result.facts["encoded"] == 30
        features = (result.tensors["features"], single.tensors["features"])
        torch.testing.assert_close(*features, atol=tolerances.embedding(), rtol=0)


def test_a_file_that_cannot_be_written_stops_both_processes(two):
    for result in two["ahnpl_without_disk"]:
        assert "[Errno 28] No space" in result.facts["error"]
    assert not list((two["ahnpl_without_disk"][0].folder / "out" / FOLDER).iterdir())


def test_what_two_processes_save_is_a_plain_model(two):
    first = two["own_objective"][0]
    folder = first.folder / "saved"
    assert (folder / OBJECTIVE_STATE_FILE).exists()
    model, report = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    weights = {name.removeprefix("backbone."): value for name, value in first.part("weight").items()}
    assert all(torch.equal(parameter, weights[name]) for name, parameter in model.named_parameters())


# Evaluation


def test_evaluation_loses_and_repeats_no_row(two, one):
    assert_same_training(two["evaluation"], one["evaluation"])
    for result in two["evaluation"]:
        lines = [line for line in result.facts["log"] if f"eval_{EVALUATED[0]}_loss" in line]
        assert len(lines) == 2
        for number in EVALUATED:
            expected = one["evaluation"][0].part(str(number))
            assert_same_tensors(result.part(str(number)), expected, tolerances.trained_embedding())
            image, text, negative_text, mask = result.part(str(number)).values()
            assert len(image) == len(text) == len(negative_text) == len(mask) == number
        keys = {key for line in result.facts["log"] for key in line}
        for number in EVALUATED:
            measured = ("loss", "rows", "image_to_text_recall@1", "text_to_image_recall@1", "caption_choice")
            assert {f"eval_{number}_{name}" for name in measured} <= keys


def test_compute_metrics_sees_the_rows_in_their_order(two):
    for result in two["evaluation"]:
        image, text, *_ = result.part(str(EVALUATED[0])).values()
        expected = {key: result.tensors[key] for key in ("image", "text")}
        assert_same_tensors({"image": image, "text": text}, expected, tolerances.embedding())


def test_both_processes_choose_the_checkpoint_by_the_same_values(two, one):
    (single,) = one["benchmarks"]
    assert_same_training(two["benchmarks"], one["benchmarks"])
    for result in two["benchmarks"]:
        assert_same_log(result.facts["log"], single.facts["log"], scale_of(single))
        assert result.facts["best"] == single.facts["best"]
        assert result.facts["written"] == single.facts["written"]
    assert single.facts["written"] == [f"benchmarks-{step}.parquet" for step in range(3)]
    # the work was shared
    shares = [result.facts["encoded"] for result in two["benchmarks"]]
    assert [sum(share) for share in zip(*shares, strict=True)] == single.facts["encoded"]
    assert single.facts["encoded"][0] == 3 * 20
    assert all(0 < share[0] < 3 * 20 for share in shares)


# Errors


@pytest.mark.parametrize("name", cases("nan_when_logging", "nan_when_saving", "nan_at_the_end"))
def test_a_loss_that_is_not_finite_stops_both_processes(two, name):
    first, second = two[name]
    out = first.folder / "out"
    for result in (first, second):
        assert f"nan at step {NAN_STEP}" in result.facts["error"]
        assert str(out / "nonfinite_batch.json") in result.facts["error"]
    batch = json.loads((out / "nonfinite_batch.json").read_text())
    rows = first.facts["batches"][NAN_STEP - 1] + second.facts["batches"][NAN_STEP - 1]
    assert len(set(rows)) == GLOBAL_BATCH
    assert batch == {"step": NAN_STEP, "loss": "nan", "rows": rows}


def test_a_loss_that_is_not_finite_is_not_saved(two):
    for name, last in {"nan_when_logging": NAN_STEP, "nan_when_saving": STEPS}.items():
        first, second = two[name]
        assert [first.facts["steps"], second.facts["steps"]] == [last, last]
        assert [path.name for path in (first.folder / "out").glob("checkpoint-*")] == ["checkpoint-2"]
        assert (first.folder / "out/checkpoint-2/model.safetensors").exists()
        assert not (first.folder / "out/model.safetensors").exists()


def test_a_smaller_last_batch_is_refused_in_training(two):
    for result in two["ragged_training"]:
        assert result.facts["error"].startswith("dataloader_drop_last=False")
        assert "Leave it at true." in result.facts["error"]
        assert result.facts["steps"] == 0


# The losses alone


@pytest.mark.parametrize("loss", LOSSES)
def test_the_slices_of_two_processes_add_up_to_the_whole(two, loss):
    assert_slices_add_up(two["rows_and_whole"], loss, sizes=[4, 3])


def test_processes_share_the_encoding_and_get_the_same_embeddings(two, one):
    assert_same_embeddings(two["embeddings"], one["embeddings"][0])
