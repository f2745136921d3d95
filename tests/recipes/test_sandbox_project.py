"""The sandbox as an annotation project: exact edits by scripted people (about 5 s)."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dataset_builders.inpaintcoco.sandbox_project import ANNOTATOR, REVIEWER, annotate_sandbox
from hfcomp.data.annotations.masks import changed_outside, read_mask
from hfcomp.data.annotations.project import Project
from hfcomp.data.image_ids import IMAGE_ID
from hfcomp.sandbox import edited_pairs_set

SCENES = 12


@pytest.fixture(scope="module")
def sandbox_project(tmp_path_factory):
    lines = []
    summary = annotate_sandbox(tmp_path_factory.mktemp("sandbox") / "project", SCENES, seed=3, log=lines.append)
    return summary, lines


def test_every_accepted_edit_is_the_exact_counterfactual(sandbox_project):
    """The mask has all pixels that differ, so the feathered border of the composition mixes equal pixels."""
    summary, _ = sandbox_project
    rows = {row[IMAGE_ID]: row for row in edited_pairs_set(SCENES, 3)}
    project = Project(summary.folder)
    accepted = list(project.decisions.accepted())
    assert summary.differing == 0 and summary.accepted == len(accepted) and summary.scenes == 3 * SCENES
    for decision in accepted:
        row = rows[decision.item.facts[IMAGE_ID]]
        edited, mask = project.read(decision.edit.image), read_mask(project.read(decision.edit.mask))
        assert np.array_equal(np.asarray(edited), np.asarray(row["inpaint_image"].convert("RGB")))
        assert np.array_equal(mask, read_mask(row["mask"]))
        assert changed_outside(project.read(decision.item.image), edited, mask, feather=0) == 0
        assert (decision.item.concept, decision.edit.caption) == (row["concept"], row["inpaint_caption"])
        assert (decision.annotator, decision.reviewer) == (ANNOTATOR, REVIEWER)
    project.decisions.close()


def test_scenes_without_a_keyword_of_their_concept_are_left_out_and_logged(sandbox_project):
    summary, lines = sandbox_project
    project = Project(summary.folder)
    counts = {name: sum(project.decisions.counts(concept=name).values()) for name in ("object", "color", "size")}
    project.decisions.close()
    assert counts["object"] == counts["size"] == SCENES and counts["color"] < SCENES
    left = SCENES - counts["color"]
    assert any(re.match(rf"{left} images.*keyword", line) for line in lines), lines


def test_a_second_call_changes_nothing(sandbox_project):
    summary, _ = sandbox_project
    assert annotate_sandbox(summary.folder, SCENES, seed=3, log=lambda line: None) == summary
