"""The control random-spans: as many texts and as long as the phrases, from anywhere in the same caption."""

from __future__ import annotations

import dataclasses

from hfcomp.data.concepts.spans import RandomSpans
from hfcomp.experiments.arm import Arm
from hfcomp.experiments.controls import CONTROLS
from hfcomp.trainers.c2lip import C2LIPTrainer
from tests import tiny


def method(**arguments: object) -> Arm:
    return Arm("C2LIP", C2LIPTrainer, {"seed": 3, **arguments}, tiny.pairs(20, concepts=True), 4)


def test_rows_keep_all_else_and_have_the_same_spans_whenever_they_are_read():
    own = method()
    rows = CONTROLS["random-spans"](own).rows
    read = rows.__getitems__(list(range(20)))
    assert [row["caption"] for row in read] == own.rows["caption"][:]
    assert [row["concepts"] for row in read] == rows.column("concepts")
    assert [rows[index] for index in (7, 3)] == [read[7], read[3]]
    for row, phrases in zip(read, own.rows["concepts"], strict=True):
        assert [row["caption"][start:end] for ((start, end),) in row["concept_spans"]] == row["concepts"]
        assert [len(text.split()) for text in row["concepts"]] == [len(phrase.split()) for phrase in phrases]
    assert rows.column("concepts") != own.rows["concepts"][:] != []
    assert rows.column("concepts") != RandomSpans(own.rows, 4).column("concepts")


def test_they_can_be_trained_on(clip, tmp_path):
    arguments = {"max_steps": 1, "use_cpu": True, "report_to": "none", "save_strategy": "no", "disable_tqdm": True}
    own = method(**arguments, concept_source="tokens")
    control = CONTROLS["random-spans"](own)
    assert control == dataclasses.replace(own, name="random-spans", rows=control.rows)
    assert control.train(clip, tmp_path / "control").steps == 1
