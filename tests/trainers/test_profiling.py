"""`profile`: which steps are measured, what their phases add up to, and that training is the same without it."""

from __future__ import annotations

import gzip
import json
import re
import time

import pytest
import torch
from torch import nn

from hfcomp.reporting.saving import render_markdown
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.profiling import (
    PHASES,
    PROFILE_FILE,
    TRACE_FILE,
    FlopReader,
    PhaseClock,
    Profile,
    StepProfiler,
    flop_counter,
    peak_flops,
    plan_steps,
    profile_report,
)
from tests import tiny
from tests.trainers.runs import assert_same_weights, batch_of, build, weights


@pytest.fixture(scope="module")
def profiled_run(clip, pairs, tmp_path_factory):
    """A run of 17 steps with a profile, its folder, and the weights of the same run without one."""
    folder = tmp_path_factory.mktemp("profiled")
    settings = {"max_steps": 17, "dataloader_num_workers": 0}
    plain = build(InfoNCETrainer, clip, pairs, folder / "plain", **settings)
    plain.train()
    trainer = build(InfoNCETrainer, clip, pairs, folder, profile=True, **settings)
    trainer.train()
    return trainer, folder / "run", weights(plain)


def test_a_profiled_run_trains_the_same_weights(profiled_run):
    trainer, _, expected = profiled_run
    assert_same_weights(weights(trainer), expected)


def test_the_table_has_every_phase_and_its_shares_are_of_a_step(profiled_run):
    _, folder, _ = profiled_run
    text = (folder / PROFILE_FILE).read_text()
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert set(PHASES) <= set(rows)
    shares = [float(re.search(r"([\d.]+)%", rows[phase])[1]) for phase in PHASES]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(PHASES))  # each is rounded to 0.1
    assert "10 steps of 8 pairs on cpu" in text
    assert "no peak for this device" in text


def test_the_trace_has_a_range_for_each_phase_of_three_steps(profiled_run):
    _, folder, _ = profiled_run
    events = json.loads(gzip.decompress((folder / TRACE_FILE).read_bytes()))["traceEvents"]
    ranges = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    assert {phase: ranges.count(f"hfcomp: {phase}") for phase in PHASES} == dict.fromkeys(PHASES, 3)
    assert sum(event["name"] == "aten::addmm" for event in events) > 3 * 10
    assert sorted(path.name for path in folder.glob("profile*")) == [PROFILE_FILE, TRACE_FILE]


def test_nothing_of_it_stays_in_the_trainer(profiled_run):
    trainer, _, _ = profiled_run
    assert "get_batch_samples" not in vars(trainer)
    assert "backward" not in vars(trainer.accelerator)
    assert not trainer.model._forward_hooks
    assert not trainer.model._forward_pre_hooks


def test_without_it_nothing_is_measured(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path)
    assert not [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, StepProfiler)]


def test_flops_are_those_of_the_layers(clip, pairs, tmp_path):
    """Forward FLOPs of the linear layers, the patch convolution and attention, from the configuration."""
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, max_steps=4, profile=True)
    profiler = next(callback for callback in trainer.callback_handler.callbacks if isinstance(callback, StepProfiler))
    trainer.train()
    counted = profiler._flops.flops
    batch, hidden, inner, layers, projection = 8, 32, 64, 2, 16
    patches = (tiny.IMAGE_SIZE // 16) ** 2
    (length,) = {inputs["input_ids"].shape[1] for inputs in trainer.get_train_dataloader()}
    patch_layer = batch * 2 * patches * hidden * 3 * 16 * 16
    attention = batch * sum(layers * 2 * 2 * tokens * tokens * hidden for tokens in (patches + 1, length))
    linear = sum(tokens * (4 * hidden * hidden + 2 * hidden * inner) for tokens in (patches + 1, length))
    linear = batch * 2 * (layers * linear + 2 * hidden * projection)
    assert counted["encode"] == patch_layer + attention + linear
    # each product has two in the backward pass; pixels need no gradient; fused attention has 5 for 2, as it computes
    # the scores again; the objective's own products are few
    towers = patch_layer + 2 * linear + attention * 5 // 2
    assert towers <= counted["backward"] <= towers + 8 * counted["loss"]
    assert counted["optimizer"] == 0


def test_recomputed_activations_are_no_flops_of_the_model(clip, pairs, tmp_path):
    flops = {}
    for size in (None, 4):
        trainer = build(InfoNCETrainer, clip, pairs, tmp_path, mini_batch_size=size)
        reader = FlopReader()
        reader.begin()
        reader.enter("encode")
        loss = trainer.compute_loss(trainer.model, batch_of(trainer, range(8)))
        reader.enter("backward")
        loss.backward()
        reader.enter(None)
        reader.end()
        flops[size] = reader.flops
    assert flops[4]["backward"] - flops[None]["backward"] == pytest.approx(flops[None]["encode"], rel=0.01)
    assert flops[4]["backward"] > 1.4 * flops[None]["backward"]
    profile = Profile(dict.fromkeys(PHASES, 1.0), 1, 8, 1, flops[4], True, "cpu", half=False)
    assert profile.model_flops == pytest.approx(sum(flops[None].values()), rel=0.01)


@pytest.mark.parametrize(
    ("steps", "plan"), [(3, None), (4, (1, 1, 1, 1)), (9, (1, 6, 1, 1)), (17, (3, 10, 1, 3)), (5000, (3, 10, 1, 3))]
)
def test_a_short_training_is_measured_in_fewer_steps(steps, plan):
    assert plan_steps(steps) == plan
    assert plan is None or sum(plan) <= steps


def test_a_training_of_three_steps_says_that_they_are_too_few(clip, pairs, tmp_path, capsys):
    build(InfoNCETrainer, clip, pairs, tmp_path, max_steps=3, profile=True).train()
    assert "only 3 training steps" in capsys.readouterr().out
    assert not list((tmp_path / "run").glob("profile*"))


def test_accumulated_batches_are_one_step(clip, pairs, tmp_path):
    settings = {"max_steps": 4, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 5}
    build(InfoNCETrainer, clip, pairs, tmp_path, profile=True, **settings).train()
    assert "1 steps of 10 pairs" in (tmp_path / "run" / PROFILE_FILE).read_text()


def test_a_clock_gives_each_phase_its_own_time():
    clock = PhaseClock(torch.device("cpu"))
    for _ in range(2):
        clock.enter("data")
        time.sleep(0.02)
        clock.enter("loss")
        clock.enter(None)
        time.sleep(0.02)  # logging, which is no part of a step
    times = clock.times()
    assert 0.04 <= times["data"] < 0.04 + 0.02 * 10
    assert times["loss"] < 0.02
    assert times["encode"] == 0


def test_the_share_of_the_peak_is_of_the_device_that_the_table_has():
    times = dict.fromkeys(PHASES, 0.02)
    flops = dict.fromkeys(PHASES, 0) | {"encode": 10**12, "backward": 2 * 10**12}
    h200 = Profile(times, 10, 1024, 1, flops, False, "NVIDIA H200", half=True)
    assert h200.seconds == pytest.approx(0.01)
    text = render_markdown(profile_report(h200))
    # 3e12 FLOP in 10 ms are 300 TFLOP/s, of 989
    assert "3 TFLOPs per step, 300 TFLOP/s: 30.3% of the 989 TFLOP/s" in text
    assert "102,400.0 pairs per second" in text
    single = render_markdown(profile_report(Profile(times, 10, 8, 2, flops, False, "NVIDIA H200", half=False)))
    assert "computes in fp32" in single
    assert "main process of 2" in single
    assert peak_flops("NVIDIA H100 PCIe") == 756e12 < peak_flops("NVIDIA H100 80GB HBM3")
    assert peak_flops("NVIDIA GeForce RTX 4090") is None


def test_the_counter_knows_the_fused_attention_of_cpus():
    query = torch.randn(2, 4, 6, 8, requires_grad=True)
    with flop_counter() as counter:
        nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    product = 2 * 2 * 4 * 6 * 6 * 8
    assert counter.get_total_flops() == (2 + 5) * product  # the backward pass computes the attention again
