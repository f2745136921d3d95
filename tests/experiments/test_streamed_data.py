"""A recipe's training set as a stream: captions joined by key, phrases found, rows without a caption counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp.data.formats import caption_files
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.controls import CONTROLS, control_arms
from hfcomp.experiments.data import training_rows
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.trainers.c2lip import C2LIPTrainer
from tests.evaluation.webdatasets import write_tar
from tests.factory import builds

SHORT = {"u0": "a red dog and a cat", "u2": "a blue cup on the table", "u4": "walking", "u5": "two green birds"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    """Two WebDataset shards of three samples as CC3M's, and a file of captions for four of the six."""
    folder = tmp_path_factory.mktemp("cc3m")
    for shard in range(2):
        members = {}
        for row in range(3 * shard, 3 * shard + 3):
            record = json.dumps({"url": f"u{row}", "width": 4}).encode()
            for ending, content in (("jpg", builds.png(row)), ("txt", b"alt"), ("json", record)):
                members[f"{row:06}.{ending}"] = content
        write_tar(folder / "shards" / f"{shard:05}.tar", members)
    (folder / "short.csv").write_text("Image Path,short\n" + "".join(f"{key},{text}\n" for key, text in SHORT.items()))
    return folder


def config(shards: Path, **changes) -> ExperimentConfig:
    fields = {"dataset": str(shards / "shards"), "captions_file": str(shards / "short.csv"), "streaming": True}
    fields |= {"key_column": "json.url", "captions_columns": "Image Path,short", "concept_parser": "rules"}
    return ExperimentConfig(objective="x:y", method="m", batch_size=2, **{**fields, **changes})


def stream(shards: Path, column_names: dict | None = None, **changes):
    lines: list[str] = []
    names = {"image": "jpg", "image_id": "__key__"} if column_names is None else column_names
    return training_rows(config(shards, **changes), column_names=names, seed=0, log=lines.append), lines


def test_captions_are_joined_and_phrases_found_as_rows_are_read(shards):
    dataset, lines = stream(shards)
    rows = list(dataset)
    assert [row["caption"] for row in rows] == list(SHORT.values())
    assert [row["concepts"] for row in rows] == [
        ["a red dog", "a cat"],
        ["a blue cup", "the table"],
        [],
        ["two green birds"],
    ]
    assert rows[0]["concept_spans"] == [[[0, 9]], [[14, 19]]]
    assert [row["left_out_rows"] for row in rows] == [0, 1, 1, 0]
    assert set(rows[0]["image"]) == {"bytes", "path"} and rows[3]["image_id"] == "000005"
    assert lines[1] == "4 captions from short.csv, joined while rows are read"


def test_left_out_rows_are_counted_over_batches(shards, monkeypatch):
    monkeypatch.setattr(caption_files, "ROWS_AT_A_TIME", 1)
    assert [row["left_out_rows"] for row in stream(shards)[0]] == [0, 1, 1, 0]


def test_a_stream_as_it_is(shards):
    dataset, lines = stream(
        shards,
        {"image": "jpg", "caption": "txt"},
        captions_file=None,
        key_column=None,
        captions_columns=None,
        concept_parser=None,
    )
    assert [row["caption"] for row in dataset] == ["alt"] * 6 and len(lines) == 1


def test_a_key_that_no_row_has_stops_the_run(shards, monkeypatch):
    monkeypatch.setattr(caption_files, "TRIED_ROWS", 3)
    with pytest.raises(ValueError, match="'__key__' .*short.csv: .*'000000'.*'u0'"):
        list(stream(shards, key_column=None)[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_column": "meta.url"}, "no column 'meta'; it has: "),
        ({"dataset_filter": "a=b"}, "dataset_filter needs all rows"),
        ({"captions": "all"}, "captions needs all rows"),
        ({"hard_images": 3, "model": "m"}, "hard_images needs all rows"),
        ({"dataset": "sandbox", "captions_file": None}, "streaming does not work with the sandbox"),
    ],
)
def test_what_cannot_be_streamed_is_refused(shards, changes, message):
    if changes.get("dataset") == "sandbox":
        changes = {**changes, "key_column": None, "captions_columns": None, "concept_parser": None}
    with pytest.raises(ValueError) as caught:
        stream(shards, **changes)
    assert message in str(caught.value)


def test_a_file_is_refused(shards):
    with pytest.raises(ValueError, match="streaming: .*short.csv .*file"):
        stream(shards, dataset=str(shards / "short.csv"))


def test_controls_that_exchange_rows_are_skipped(shards):
    run = Arm("C2LIP", C2LIPTrainer, {"seed": 1}, stream(shards)[0], 2)
    lines: list[str] = []
    assert [arm.name for arm in control_arms(CONTROLS, run, requested=False, log=lines.append)] == ["plain"]
    assert any("random-spans is skipped: " in line and "is streamed" in line for line in lines)


def test_a_stream_trains_as_loaded_rows_do_and_counts_what_was_left_out(siglip, shards, tmp_path):
    arguments = {"max_steps": 3, "use_cpu": True, "report_to": "none", "save_strategy": "no", "logging_steps": 1}
    run = Arm("C2LIP", C2LIPTrainer, {**arguments, "disable_tqdm": True, "seed": 1}, stream(shards)[0], 4)
    cost = run.train(siglip, tmp_path / "method")
    assert (cost.steps, cost.images) == (3, 12)
    history = json.loads((tmp_path / "method" / "history.json").read_text())
    assert [line.get("left_out_rows") for line in history[:3]] == [2, 2, 2]
    assert "loss_concept" in history[0]
