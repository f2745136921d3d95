"""What errors of the targets of adapters advise, where the objective decides which towers are trained."""

from __future__ import annotations

import pytest

from hfcomp.data.annotations.project import MODELS, Project, project_models
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.text_alignment import TextAlignmentTrainer
from tests import tiny
from tests.trainers.group_rows import add_groups
from tests.trainers.runs import build


@pytest.mark.follows("hfcomp/modeling/adapters.py", "Remove it from lora_targets.")
def test_a_target_in_a_tower_that_is_not_trained(advice, clip, tmp_path):
    rows = tiny.pairs(8, ragged=False)
    texts = add_groups(rows).select_columns(["caption", "generalized_caption"])
    cases = [
        (InfoNCETrainer, rows, {"freeze_towers": ["text"]}, "text_projection"),
        (TextAlignmentTrainer, texts, {}, "visual_projection"),  # which no freeze_towers would change
    ]
    for kind, data, settings, target in cases:
        settings = {"peft": "lora", **settings}
        advice.of(build, kind, str(clip), data, tmp_path, lora_targets=["mlp", target], **settings)
        build(kind, str(clip), data, tmp_path, lora_targets=["mlp"], **settings)


@pytest.mark.follows("hfcomp/data/annotations/project.py", "Remove it; only dataset cards use it.")
def test_a_damaged_note_of_a_model(advice, tmp_path):
    project = Project(tmp_path / "project")
    project.add_model("segmenter", "clipseg")
    project.decisions.close()
    damaged = tmp_path / "project" / MODELS / "other.json"
    damaged.write_text("[]")
    advice.of(project_models, tmp_path / "project")
    damaged.unlink()
    assert project_models(tmp_path / "project") == [("segmenter", "clipseg")]
