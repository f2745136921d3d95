"""The bar of a stage: which of how many, and the time left for all, unknown until a step is done."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from transformers import TrainerControl

from hfcomp.trainers import progress
from hfcomp.trainers.progress import Pace, StageProgress, format_duration


def test_the_time_left_is_of_all_stages_by_the_steps_so_far():
    pace = Pace(stages=3)
    assert pace.seconds_left(0, 0.0, step=0, total=100) is None
    assert pace.seconds_left(10, 20.0, step=10, total=100) == 2.0 * (90 + 2 * 100)
    pace.add(100, 200.0)
    assert pace.stage == 2 and pace.seconds_left(0, 0.0, step=0, total=100) == 2.0 * (100 + 100)
    assert pace.seconds_left(100, 400.0, step=100, total=100) == 3.0 * 100
    pace.add(100, 400.0)
    # resumed at step 60: the steps before it were done by another process
    assert pace.seconds_left(20, 100.0, step=80, total=100) == pytest.approx((600 + 100) / 220 * 20)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(40.4, "40 s"), (700, "12 min"), (3900, "1 h 05 min"), (3599, "1 h 00 min")]
)
def test_a_time_in_words(seconds, expected):
    assert format_duration(seconds) == expected


def test_the_bar_says_stage_and_time_left(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    bar = StageProgress("shuffled", Pace(stage=2, stages=6))
    state = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=11)
    bar.on_train_begin(None, state, TrainerControl())
    assert bar.training_bar.desc == "stage 2 of 6: shuffled: "
    now[0], state.global_step = 30.0, 1
    bar.on_step_end(None, state, TrainerControl())
    assert bar.training_bar.desc == "stage 2 of 6: shuffled, 27 min left: "
    bar.training_bar.close()


def test_a_stage_of_its_own_shows_its_name(capsys):
    assert StageProgress("clip, phase 1 of 2").describe(3, 10) == "clip, phase 1 of 2"
