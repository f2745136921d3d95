"""Trackers get what is logged, each training as a run of its own; they are off by default and get no token."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import textwrap
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers.integrations import TensorBoardCallback
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from hfcomp import InfoNCEConfig, InfoNCETrainer
from hfcomp.trainers import trackers
from hfcomp.trainers.cost import ELAPSED
from tests import processes, tiny

SECRET = "hf_NobodyMayReadThis"
NAMES = ["loss", "learning_rate", "logit_scale", "accuracy_image_to_text", "texts_encoded", "changed_weight_fraction"]
RUN = """
    import io, os, sys
    from pathlib import Path
    from PIL import Image
    from transformers import AutoProcessor
    from hfcomp import InfoNCETrainer
    from hfcomp.trainers.stages import train_stage
    from hfcomp.trainers.trackers import TrackedRun, send_results
    from tests import tiny

    clip, folder = sys.argv[1], Path(sys.argv[2])
    def png():
        file = io.BytesIO()
        Image.new("RGB", (8, 6), (200, 10, 10)).save(file, "PNG")
        return file.getvalue()
    pictures = lambda: {"examples/training_pairs": png()}
    run = TrackedRun("composition", "study", "plain", folder / "tensorboard", pictures)
    names = ["tensorboard", "wandb", "trackio"]
    fields = {"max_steps": 4, "logging_steps": 2, "save_strategy": "no", "use_cpu": True, "disable_tqdm": True}
    fields |= {"report_to": names, "hub_token": os.environ["HF_TOKEN"], "num_negatives": 1}
    for name in ("plain", "method"):
        one = run if name == "plain" else run.with_name(name)
        how = {"batch_size": 4, "resume": True, "run": one}
        train_stage(name, InfoNCETrainer, clip, tiny.pairs(16), folder / name, fields, **how)
    table = (["benchmark", "value"], [["sandbox | all", 0.5]])
    send_results(names, run.with_name("results"), pictures={"results/figure": png()}, tables={"results/table": table})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, clip) -> Path:
    """What a study of two arms sends to three trackers, in a process without network."""
    folder = tmp_path_factory.mktemp("tracked")
    places = {"WANDB_DIR": folder, "TRACKIO_DIR": folder / "trackio", "HF_HOME": folder / "home"}
    own = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB", "TRACKIO"))}
    own |= {key: str(path) for key, path in places.items()} | {"WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
    own |= {"PYTHONPATH": str(Path(__file__).parents[2]), "HF_TOKEN": SECRET, "WANDB_SILENT": "true"}
    done = processes.run(["-c", textwrap.dedent(RUN), clip, folder], env=own, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def logged_keys(stage: Path) -> set[str]:
    """The keys that a training logged at its steps, under the trackers' names."""
    lines = [line for line in json.loads((stage / "history.json").read_text()) if "loss" in line]
    keys = {f"train/{key}" for line in lines for key in line if key not in ("step", ELAPSED)}
    assert keys >= {f"train/{name}" for name in NAMES}
    return keys


def test_tensorboard_has_a_run_for_each_training(folder):
    assert sorted(path.name for path in (folder / "tensorboard").iterdir()) == ["method", "plain", "results"]
    for name in ("plain", "method"):
        events = EventAccumulator(str(folder / "tensorboard" / name)).Reload()
        assert set(events.Tags()["scalars"]) >= logged_keys(folder / name)
        steps = [event.step for event in events.Scalars("train/loss")]
        history = json.loads((folder / name / "history.json").read_text())
        logged = {line["step"]: line["loss"] for line in history if "loss" in line}
        assert steps == list(logged) == [2, 4]
        assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(list(logged.values()))
        assert events.Tags()["images"] == (["examples/training_pairs"] if name == "plain" else [])
    picture = EventAccumulator(str(folder / "tensorboard/plain")).Reload().Images("examples/training_pairs")[0]
    decoded = Image.open(io.BytesIO(picture.encoded_image_string))
    assert decoded.size == (8, 6) and np.asarray(decoded)[0, 0].tolist() == [200, 10, 10]
    results = EventAccumulator(str(folder / "tensorboard/results")).Reload()
    assert results.Tags()["images"] == ["results/figure"]
    (table,) = results.Tensors("results/table/text_summary")
    assert b"| sandbox &#124; all | 0.5 |" in table.tensor_proto.string_val[0]


def test_trackio_has_them_in_one_project(folder):
    with sqlite3.connect(folder / "trackio" / "composition.db") as database:
        rows = [(run, json.loads(line)) for run, line in database.execute("select run_name, metrics from metrics")]
    assert {run for run, _ in rows} == {"study/plain", "study/method", "study/results"}
    for name in ("plain", "method"):
        lines = [line for run, line in rows if run == f"study/{name}"]
        assert {key for line in lines for key in line} >= logged_keys(folder / name)
        assert [line["train/global_step"] for line in lines if "train/loss" in line] == [2, 4]
    pictures = {(run, key) for run, line in rows for key, value in line.items() if "trackio.image" in str(value)}
    assert pictures == {("study/plain", "examples/training_pairs"), ("study/results", "results/figure")}
    assert len(list((folder / "trackio/media").rglob("*.png"))) == 2
    assert any("sandbox | all" in str(line.get("results/table")) for _, line in rows)


def test_weights_and_biases_has_a_finished_run_for_each_in_one_group(folder):
    contents = {path: path.read_bytes() for path in (folder / "wandb").glob("offline-run-*/*.wandb")}
    assert len(contents) == 3
    for name, pictures, tables in (("plain", 1, 0), ("method", 0, 0), ("results", 1, 1)):
        # folders are named by second and chance, so that their order is not that of the runs
        ((file, content),) = [item for item in contents.items() if f"study/{name}".encode() in item[1]]
        assert b"composition" in content
        if name != "results":
            assert all(key.encode() in content for key in logged_keys(folder / "plain"))
        media = file.parent / "files/media"
        assert len(list((media / "images").rglob("*.png"))) == pictures
        assert len(list((media / "table").rglob("*.json"))) == tables


def test_no_tracker_receives_a_token(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".safetensors")]
    assert len(files) > 20
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_trackers_are_off_by_default(clip, pairs, tmp_path):
    """All three are installed here."""
    args = InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True)
    trainer = InfoNCETrainer(str(clip), args, train_dataset=pairs)
    assert args.report_to == []
    assert not [
        callback
        for callback in trainer.callback_handler.callbacks
        if type(callback) in INTEGRATION_TO_CALLBACK.values()
    ]


def test_a_run_that_is_not_named_is_left_to_transformers(clip, tmp_path):
    args = InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True, report_to="tensorboard", max_steps=1)
    trainer = InfoNCETrainer(str(clip), args, train_dataset=tiny.pairs(8))
    with trackers.track_run(trainer, None):
        (callback,) = [
            callback for callback in trainer.callback_handler.callbacks if isinstance(callback, TensorBoardCallback)
        ]
        assert callback.logging_dir is None


@pytest.mark.parametrize("name", trackers.TRACKERS)
def test_a_tracker_that_is_not_installed_is_named_with_the_command(tmp_path, monkeypatch, name):
    monkeypatch.setattr(trackers, "find_spec", lambda module: None if module == name else object())
    with pytest.raises(ImportError, match=rf"{name} .*pip install 'hfcomp\[trackers\]'"):
        InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True, report_to=name)


def test_an_unknown_tracker_is_named_with_the_nearest(tmp_path):
    with pytest.raises(ValueError, match=r"'tensorbord'.*'tensorboard'"):
        InfoNCEConfig(output_dir=str(tmp_path), use_cpu=True, report_to="tensorbord")


def test_a_run_of_the_user_s_own_is_not_replaced(monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setattr(wandb, "run", object())
    run = trackers.TrackedRun("p", "g", "n", Path("t"))
    assert trackers._start_wandb(run) is False


@pytest.mark.parametrize(("given", "project"), [(None, "hfcomp"), ("huggingface", "hfcomp"), ("mine", "mine")])
def test_the_project_is_hfcomp_s_unless_one_is_named(given, project):
    assert trackers.project_name(given) == project
