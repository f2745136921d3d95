"""`make real`'s recipe on real photographs, cut to seconds: a small model in the place of the ViT-B/32."""

from __future__ import annotations

import json
import os
import re

import pandas as pd
import pytest
import torch

from hfcomp.experiments import program
from hfcomp.experiments.recipes import read_recipe

pytestmark = pytest.mark.usefixtures("without_figures")


@pytest.fixture(scope="module")
def folder(clip, tmp_path_factory):
    if "HFCOMP_REAL_DATA" not in os.environ:
        pytest.skip("HFCOMP_REAL_DATA is not set; it names a folder with COCO photographs and SugarCrepe")
    torch.set_num_threads(1)
    fields = f"--model {clip} --max_steps 3 --logging_steps 1 --disable_tqdm true"
    output = tmp_path_factory.mktemp("real") / "run"
    return program.run(read_recipe("slipform/real", [*fields.split(), "--output_dir", str(output)]))


def test_it_trains_on_the_photographs_outside_sugarcrepe_with_keyword_negatives(folder):
    notes = json.loads((folder / "results.json").read_text())["notes"]
    assert any(re.match("296 .*in_sugarcrepe=false; 153 .*left out", note) for note in notes)
    assert "215 captions have a keyword and got a negative; 81 are used without one" in notes
    assert any(
        re.match(r"none .* 296 rows .* CementTrainer .*allow_missing_negative_images\): not its paper's", note)
        for note in notes
    )
    assert any(note.startswith("concreteness of negatives' keywords: 205 of 215") for note in notes)


def test_margins_differ_because_ratings_do(folder):
    history = json.loads((folder / "method" / "history.json").read_text())
    margins = [line["margin"] for line in history if "margin" in line]
    assert len(set(margins)) > 1 and all(-2 < margin < 2 for margin in margins)


def test_it_scores_the_735_items_whose_photograph_is_there(folder):
    items = pd.read_parquet(folder / "items.parquet")
    assert items.groupby("arm").size().to_dict() == {"base": 735, "Slipform": 735}
    assert items["image_id"].nunique() == 153
    assert set(items["subset"]) == {
        "add_att",
        "add_obj",
        "replace_att",
        "replace_obj",
        "replace_rel",
        "swap_att",
        "swap_obj",
    }


def test_cost_has_loss_speed_memory_and_truncated_captions(folder):
    (stage,) = json.loads((folder / "results.json").read_text())["stages"]
    assert stage["images"] == 3 * 32  # no photograph has a negative image
    assert stage["texts"] > stage["images"]
    assert stage["images_per_second"] > 0 and stage["peak_memory_gib"] > 0 and stage["loss"] > 0
    # the tiny text tower has 24 positions and splits real words into letters
    assert 0 < stage["truncated_text_share"] <= 1
