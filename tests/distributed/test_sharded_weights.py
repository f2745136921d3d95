"""FSDP2 on two processes, with the variables that `accelerate launch` sets for `recipes/accelerate/fsdp.yaml`."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from hfcomp.modeling import OBJECTIVE_STATE_FILE
from hfcomp.modeling.adapters import SCALARS
from hfcomp.trainers.weight_average import AVERAGE_FILE
from tests import tolerances
from tests.distributed.cases import STEPS, trainer_of, weights_of
from tests.distributed.compare import assert_same_tensors, scale_of, weight_tolerances
from tests.distributed.launch import Result, Results, launch
from tests.distributed.sharded_cases import CHECKPOINTS, SETTINGS, SHARDED_ONLY
from tests.distributed.test_two_processes import SCALARS as CASES
from tests.distributed.test_two_processes import assert_in_step, assert_same_log, assert_same_training
from tests.recipes.accelerate_files import fsdp_environment, needs_fsdp
from tests.trainers.own_objective import OwnTrainer

pytestmark = needs_fsdp
OFFSET = "objective_state.offset.value"
# learned margins and thresholds with several batches a step, adapters
COMMON = ("ahnpl_live", "adapted")
OTHERS = (
    *(name for name in CASES if name not in COMMON),
    *("lone_negative", "hierarcaps", "clear_glass", "clear_glass_centroid", "clear_glass_pairs", "text_alignment"),
    *("adapted_pooling", "accumulation", "frozen_images", "frozen_by_hand", "own_objective", "mini_batches"),
    *("evaluation", "recomputed"),
)
LATER = ("drawn_captions_resumed", "nan_when_saving", "trained_twice")
LAUNCHED = (*COMMON, "benchmarks", *(name for name in SHARDED_ONLY if name not in (*OTHERS, *LATER)))


@pytest.fixture(scope="module")
def sharded_runs(models, one, tmp_path_factory) -> Results:
    settings = {**fsdp_environment(), CHECKPOINTS: str(one["resumable"][0].folder / "out")}
    return launch(2, models, tmp_path_factory.mktemp("sharded"), [*LAUNCHED], **settings)


@pytest.fixture(scope="module")
def others(models, tmp_path_factory) -> Results:
    return launch(2, models, tmp_path_factory.mktemp("others"), [*OTHERS, *LATER], **fsdp_environment())


def assert_split(results: list[Result]) -> None:
    """All weights are split but for scalars and the objective's own."""
    for result in results:
        whole = result.part("weight").keys() - set(result.facts["split"])
        assert result.facts["split"]
        assert {name.rpartition(".")[2] for name in whole if not name.startswith("objective_state.")} <= {*SCALARS}


@pytest.mark.parametrize("name", COMMON)
def test_sharded_weights_train_as_those_of_one_process(sharded_runs, one, name):
    assert_same_training(sharded_runs[name], one[name])
    assert_split(sharded_runs[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_every_trainer_shards_its_weights(others, one, name):
    assert_same_training(others[name], one["cement" if name == "mini_batches" else name])
    assert_split(others[name])


@pytest.mark.slow
def test_a_resumed_run_draws_the_captions_of_the_whole_one(others):
    for result in others["drawn_captions_resumed"]:
        whole, resumed = result.part("whole"), result.part("resumed")
        assert whole and all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_both_processes_score_benchmarks_with_whole_copies(sharded_runs, one):
    (single,) = one["benchmarks"]
    assert_same_training(sharded_runs["benchmarks"], one["benchmarks"])
    for result in sharded_runs["benchmarks"]:
        assert_same_log(result.facts["log"], single.facts["log"], scale_of(single))
        assert result.facts["best"] == single.facts["best"]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_stops_both_processes(others):
    for result in others["nan_when_saving"]:
        assert result.facts["error"].startswith("the loss is nan at step 3")


def test_half_precision_keeps_weights_and_losses_in_full(sharded_runs, one):
    expected = one["half"][0].part("gradient")
    for result in sharded_runs["half"]:
        assert result.facts["features"] == result.facts["weights"] == ["torch.float32"]
        gradients = result.part("gradient")
        assert gradients.keys() == expected.keys()
        assert all(gradient.dtype == torch.float32 for gradient in gradients.values())
        # autocast of one process keeps norms in fp32: equal they are not, but a sum in place of a mean is twice it
        flat, other = (torch.cat([part[name].flatten() for name in sorted(part)]) for part in (gradients, expected))
        assert flat.norm().item() == pytest.approx(other.norm().item(), rel=0.1)
        assert torch.cosine_similarity(flat, other, dim=0) > 0.99
        (line,) = result.facts["log"]
        assert line["loss_image_to_text"] != one["half"][0].facts["log"][0]["loss_image_to_text"]


# Checkpoints


def test_a_run_with_an_objective_of_its_own_goes_on_from_a_checkpoint(sharded_runs, one):
    assert_same_training(sharded_runs["resumable"], one["resumable"])
    assert one["resumable"][0].facts["log"][0]["grad_norm"] > SETTINGS["max_grad_norm"]  # which it is clipped to
    for result in sharded_runs["resumable"]:
        weights, resumed = result.part("weight"), result.part("resumed")
        assert OFFSET in weights
        assert all(torch.equal(resumed[name], weight) for name, weight in weights.items())


def test_checkpoints_hold_the_files_of_one_process(sharded_runs, one):
    (single,), (first, _) = one["resumable"], sharded_runs["resumable"]
    for place in ("saved", "out/checkpoint-2"):
        files = {path.name for path in (single.folder / place).iterdir()}
        assert {path.name for path in (first.folder / place).iterdir()} ^ files <= {
            "rng_state.pth",
            "rng_state_0.pth",
            "rng_state_1.pth",
        }
    allowed = weight_tolerances(single, scale_of(single))
    for name in ("model.safetensors", OBJECTIVE_STATE_FILE, AVERAGE_FILE):
        tensors, expected = (load_file(result.folder / "out/checkpoint-2" / name) for result in (first, single))
        limits = {key: allowed[key if key in allowed else f"backbone.{key}"] for key in expected}
        assert_same_tensors(tensors, expected, limits)
    model, report = AutoModel.from_pretrained(first.folder / "saved", output_loading_info=True)
    assert not any(report.values()), report
    weights = first.part("weight")
    assert all(torch.equal(weights[f"backbone.{name}"], weight) for name, weight in model.named_parameters())


def test_one_process_goes_on_from_a_sharded_checkpoint_and_the_reverse(sharded_runs, one, models, tmp_path):
    (single,) = one["resumable"]
    allowed = weight_tolerances(single, scale_of(single))
    trainer = trainer_of(OwnTrainer, models / "siglip", tmp_path, **SETTINGS)
    trainer.train(resume_from_checkpoint=str(sharded_runs["resumable"][0].folder / "out" / "checkpoint-2"))
    assert trainer.state.global_step == STEPS
    weights = {name.partition("/")[2]: weight for name, weight in weights_of(trainer.model).items()}
    assert_same_tensors(weights, single.part("weight"), allowed)
    assert_in_step(sharded_runs["resumed_from_one"])
    assert_same_tensors(sharded_runs["resumed_from_one"][0].part("weight"), single.part("weight"), allowed)


@pytest.mark.slow
def test_a_trainer_trains_twice(others, one):
    (single,) = one["trained_twice"]
    for result in others["trained_twice"]:
        assert result.facts["loss"] == pytest.approx(single.facts["loss"], abs=tolerances.loss())
        assert_same_tensors(result.part("weight"), single.part("weight"), weight_tolerances(single, scale_of(single)))


def test_what_is_not_supported_is_refused_by_name(sharded_runs):
    for result in sharded_runs["refused"]:
        said = result.facts["said"]
        assert said["evaluated"].startswith("evaluation before training is not supported with FSDP")
        assert "optim=Adafactor" in said["optim"]
        assert "torch_compile" in said["compiled"]


def test_the_share_of_changed_weights_is_that_of_all_parts(sharded_runs, one):
    for name in ("ahnpl_live", "adapted"):
        expected = one[name][0].facts["changed"]
        assert 0 < expected <= 1
        for result in sharded_runs[name]:
            assert result.facts["changed"] == pytest.approx(expected, abs=0.02)
