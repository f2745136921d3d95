"""COCO-Counterfactuals in the files of its repository on the Hub (about 2 s)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks.composition.image_pairs import (
    COCO_COUNTERFACTUALS,
    COUNTERFACTUALS_AT,
    COUNTERFACTUALS_REPO,
)
from hfcomp.evaluation.engine import NO_IMAGE
from tests.evaluation.benchmarks import groups
from tests.evaluation.encoders import check_chance, check_known_scorers, items

NAMES = ["236308_0", "236308_1", "9891_0"]
TRUE = groups.true_of(len(NAMES))


def raw(folder: Path) -> Path:
    return groups.examples(folder, [(f"{n}_img_0", f"{n}_img_1") for n in NAMES], ending=".jpg", id=list(NAMES))


@pytest.mark.parametrize("layout", [raw, lambda folder: groups.packed(raw(folder))])
def test_known_scorers_on_both_layouts(tmp_path, layout):
    rows = items(COCO_COUNTERFACTUALS, layout(tmp_path / "c"))
    assert rows.rows["item"][:] == NAMES
    # both edits of one caption of COCO are one photograph in intervals
    assert rows.rows["image_id"][:] == ["236308", "236308", "9891"]
    check_known_scorers(COCO_COUNTERFACTUALS, rows, TRUE)


def test_a_random_scorer_is_at_chance():
    check_chance(COCO_COUNTERFACTUALS, groups.TEXTS)


def test_from_the_hub_at_the_pinned_commit(tmp_path, monkeypatch):
    groups.packed(raw(tmp_path / COUNTERFACTUALS_AT / "data"))
    asked = {}

    def download(repo, **how):
        asked.update(how, repo=repo)
        return str(tmp_path / COUNTERFACTUALS_AT)

    monkeypatch.setattr(hub, "snapshot_download", download)
    rows = items(COCO_COUNTERFACTUALS, None)
    assert (asked["repo"], asked["revision"]) == (COUNTERFACTUALS_REPO, COUNTERFACTUALS_AT)
    assert {"data/examples.jsonl", "data/images.zip"} <= set(asked["allow_patterns"])
    assert rows.origin.commit == COUNTERFACTUALS_AT
    check_known_scorers(COCO_COUNTERFACTUALS, rows, TRUE)


def test_an_image_that_the_archive_lacks_is_left_out(tmp_path):
    (raw(tmp_path / "c") / "images" / "9891_0_img_1.jpg").unlink()
    assert items(COCO_COUNTERFACTUALS, groups.packed(tmp_path / "c")).left_out == {NO_IMAGE: 1}
