"""Replay in a recipe: which rows, the same for every arm, guarded against overlap and counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from hfcomp.experiments import command, program
from hfcomp.experiments.arm import Arm, method_arm
from hfcomp.experiments.controls import CONTROLS, equal_images
from hfcomp.experiments.data import load_rows
from hfcomp.experiments.dry_run import DryRun
from hfcomp.experiments.recipes import read_recipe
from hfcomp.experiments.session import Session
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.sandbox import REPLAY_SEED, pretraining_set
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.cost import StageSummary
from tests import tiny
from tests.experiments.arms import arms_of
from tests.experiments.test_overlap import Quiet, load, own_cache, pairs, recipe, rows, scored_images  # noqa: F401

pytestmark = pytest.mark.usefixtures("without_figures")

SMALL = {"dataset_rows": 48, "batch_size": 8, "max_steps": 2, "evaluation_items": 3, "page": "false"}
SMALL |= {"save_strategy": "no", "disable_tqdm": "true", "replay_dataset": "sandbox", "replay_fraction": 0.5}


def words(folder: Path | str = "unused", **changes: object) -> list[str]:
    values = {**SMALL, "output_dir": folder, **changes}
    return [word for key, value in values.items() if value is not None for word in (f"--{key}", str(value))]


def test_the_sandbox_replays_general_scenes_of_seeds_that_nothing_else_has():
    training_data = load_rows(read_recipe("slipform", words(seed=3)), Session(Quiet()), [])
    general = pretraining_set(48, REPLAY_SEED + 3, places=True)
    assert training_data.replay["caption"][:] == general["caption"][:]
    assert training_data.replay["image_id"][:] == general["image_id"][:]
    assert not {*training_data.replay["image_id"]} & {*training_data.rows["image_id"]}


def test_a_run_has_as_many_rows_as_a_dry_run_counts_and_says_so(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    studies: list[DryRun] = []
    given = words(tmp_path / "run", controls="none", seed=42)
    monkeypatch.setattr(DryRun, "_print", lambda study: studies.append(study))
    command.main("slipform", [*given, "--dry_run"])
    folder = program.run(read_recipe("slipform", given))
    results = json.loads((folder / "results.json").read_text())
    stages = {stage["name"]: stage for stage in results["stages"]}
    assert {name: stage["images"] for name, stage in stages.items()} == {"Slipform": 48}
    assert {name: cost.images for name, cost in studies[0].costs.items()} == {"Slipform": 48}
    assert results["data"]["replay"] == {"dataset": "sandbox", "rows": 48, "rows_per_batch": 8}
    card = (folder / "README.md").read_text()
    assert "| replay | the sandbox's drawn scenes, 48 rows, 8 in each batch in addition to the task's rows |" in card
    assert any(note.startswith("replay: 48 rows of sandbox") for note in results["notes"])


def test_controls_differ_in_the_task_alone(clip, tmp_path):
    general = tiny.pairs(30, ragged=False).select(range(16, 30)).select_columns(["image", "caption", "image_id"])
    arguments = {"seed": 3, "margin": "adaptive", "replay_fraction": 0.5, "max_steps": 2, "use_cpu": True}
    arguments |= {"report_to": "none", "save_strategy": "no", "disable_tqdm": True}
    method = Arm("Method", CementTrainer, arguments, tiny.pairs(16), 4, replay=general)
    arms = [method, *(CONTROLS[name](method) for name in ("plain", "same-batch", "shuffled"))]
    cost = StageSummary("Method", 2, 2 * 11, 1, 1.0, 1.0, 1.0, 1.0, 0.0)  # 4 rows, 4 replay rows, 3 negative images
    arms.append(equal_images(method, cost))
    assert [arm.batch_size for arm in arms] == [4, 4, 4, 4, 7]
    seen = []
    for arm in arms:
        assert arm.replay is general
        batches: list[list[int]] = []

        class Watched(arm.trainer_class):
            def gather_features(self, model, inputs, batches=batches):
                batches.append([row for row in inputs["row"].tolist() if row >= 16])
                return super().gather_features(model, inputs)

        replace(arm, trainer_class=Watched).train(clip, tmp_path / arm.name)
        seen.append(batches)
    assert [len(batch) for batch in seen[0]] == [4, 4] and seen == [seen[0]] * 5


def test_a_replay_row_that_is_scored_is_left_out(rows, clip, tmp_path):  # noqa: F811
    """Of the general set rows 2 to 5 are copies of scored images."""
    pairs(range(10, 24)).save_to_disk(tmp_path / "general")
    pairs(range(30, 46)).save_to_disk(tmp_path / "task")
    given = {"train": str(tmp_path / "task"), "test": rows["test"]}
    asked = recipe(given, clip, replay_dataset=tmp_path / "general", replay_fraction=0.5)
    session = Session(Quiet())
    training_data = load_rows(asked, session, scored_images(asked, session))
    assert (len(training_data.rows), len(training_data.replay)) == (16, 8)
    said = [note for note in session.notes if note.startswith("overlap: ")]
    assert len(said) == 2 and said[1].startswith("overlap: the replay set: 6 of 14 training rows show 6 of the 6")
    arm = method_arm(asked, *training_data)
    arm.check()
    assert arm.replay is training_data.replay and training_data.replay.column_names == ["image", "caption", "image_id"]
    with pytest.raises(ValueError, match="overlap: 6 of 14.*set to refuse"):
        load_rows(recipe(given, clip, replay_dataset=tmp_path / "general", replay_fraction=0.5, overlap="refuse"),
                  Session(Quiet()), scored_images(asked, session))  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replay_fraction": None}, "replay_dataset=sandbox .*--replay_fraction 0.5"),
        ({"replay_dataset": None}, "replay_fraction=0.5 .*--replay_dataset"),
        ({"replay_dataset": None, "replay_fraction": None, "replay_split": "x"}, "replay_split .*replay_dataset"),
        ({"replay_split": "x"}, "replay_split .*replay_dataset: sandbox"),
    ],
)
def test_one_field_without_the_other_is_an_error(changes, message):
    with pytest.raises(ValueError, match=message):
        method_arm(read_recipe("slipform", words(**changes)), None)


def test_a_fraction_of_0_switches_a_set_off():
    asked = read_recipe("slipform", words(replay_fraction=0))
    training_data = load_rows(asked, Session(Quiet()), [])
    arm = method_arm(asked, *training_data)
    arm.check()
    assert len(training_data.replay) == 48 and arm.replay is None


def test_a_sweep_may_set_the_fraction(tmp_path):
    """As the search for a regime does: with and without, on one set of rows."""
    plan = {
        "seeds": [1],
        "reference": "none",
        "variants": {"none": {"margin": "none"}, "static": {"margin": "static"}},
    }
    plan["settings"] = {"without": {"replay_fraction": 0}, "half": {"replay_fraction": 0.5}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))
    given = words(replay_fraction=None, controls=None, output_dir=None)
    arms, _ = arms_of(read_plan("slipform", ["--report", str(tmp_path / "mine.yaml"), *given]), tmp_path)
    assert [arm.replay is None for arm in arms] == [True, True, False, False]
    plan["variants"]["static"]["replay_fraction"] = 0.25
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(plan))
    with pytest.raises(ValueError, match="replay_fraction .*rows or batches"):
        read_plan("slipform", ["--report", str(tmp_path / "mine.yaml"), *given])
    assert arms[2].replay is arms[3].replay and arms[2].replay["image_id"][0].startswith("sandbox-places-")


def test_columns_of_the_replay_set_may_have_other_names(tmp_path, clip, rows):  # noqa: F811
    """And of several captions the longest is replayed."""
    general = pairs(range(30, 40)).select_columns(["image", "caption"])
    general = general.map(lambda row: {"caption": ["a", row["caption"]]})
    general.rename_columns({"image": "jpg", "caption": "txt"}).save_to_disk(tmp_path / "general")
    changes = {"replay_dataset": tmp_path / "general", "replay_fraction": 0.5}
    asked = recipe(rows, clip, **changes, replay_column_names="image=jpg,caption=txt")
    training_data = load_rows(asked, Session(Quiet()), [])
    assert training_data.replay["caption"][:] == [texts[1] for texts in general["caption"]]
    method_arm(asked, *training_data).check()
    asked = recipe(rows, clip, **changes)
    with pytest.raises(ValueError, match=r"no column 'image'; .* --replay_column_names image="):
        method_arm(asked, *load_rows(asked, Session(Quiet()), [])).check()


def test_a_streamed_task_replays_loaded_rows(tmp_path, clip, rows):  # noqa: F811
    """Streamed rows have an `image_id` each, so replay rows have one too, and none of a scored image is left."""
    pairs(range(30, 46)).to_parquet(str(tmp_path / "task" / "train.parquet"))
    pairs(range(10, 24)).save_to_disk(tmp_path / "general")
    changes = {"replay_dataset": tmp_path / "general", "replay_fraction": 0.5, "streaming": "true", "max_steps": 2}
    asked = recipe({"train": str(tmp_path / "task"), "test": rows["test"]}, clip, **changes)
    session = Session(Quiet())
    arm = method_arm(asked, *load_rows(asked, session, scored_images(asked, session)))
    arm.check()
    assert len(arm.replay) == 8 and all(arm.replay["image_id"])
    assert arm.train(clip, tmp_path / "run").images == 2 * (4 + 4 + 4)
