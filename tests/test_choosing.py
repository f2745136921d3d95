"""The table of objectives: its columns are those that the trainers read, its costs those that a step counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hfcomp.experiments.recipe_files import recipes_folder
from hfcomp.fields import columns_of
from hfcomp.trainers.ahnpl import AHNPLTrainer
from hfcomp.trainers.c2lip import C2LIPTrainer
from hfcomp.trainers.ce_clip import CEClipTrainer
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.dcl import DCLTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.replaced_negatives import ReplacedNegativesTrainer
from hfcomp.trainers.triplet_clip import TripletClipTrainer
from tests import tiny
from tests.trainers.runs import build

PAGE = Path(__file__).parents[1] / "docs/choosing.md"
TRAINERS = {
    "InfoNCE, sigmoid": (InfoNCETrainer, {}),
    "DCL": (DCLTrainer, {}),
    "C2LIP": (C2LIPTrainer, {}),
    "InfoNCE with negatives": (InfoNCETrainer, {"num_negatives": 2}),
    "in-row replacement (HN1 to HN3)": (ReplacedNegativesTrainer, {}),
    "CE-CLIP": (CEClipTrainer, {}),
    "AHNPL": (AHNPLTrainer, {}),
    "Cement (Slipform)": (CementTrainer, {}),
    "TripletCLIP": (TripletClipTrainer, {}),
}


def table() -> dict[str, list[str]]:
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return {row[1]: row for row in rows if len(row) == 6 and row[0] != "columns you have"}


def words(cell: str, number: int) -> str:
    """What a cell says of a number of negatives or phrases."""
    return {"1 + negatives": str(1 + number), "1 + phrases, 9 at most": str(1 + number)}.get(cell, cell)


@pytest.mark.parametrize("name", TRAINERS)
def test_a_row_encodes_what_the_table_says(name, clip, tmp_path):
    trainer_class, settings = TRAINERS[name]
    rows = tiny.pairs(8, negatives=4, concepts=True, ragged=False).remove_columns("negative_kinds")
    rows = rows.add_column("negative_kinds", [["swap_att"] * 4] * 8)
    trainer = build(trainer_class, clip, rows, tmp_path, max_steps=1, **settings)
    trainer.train()
    read = {*columns_of(trainer.required_features)} - {"image_id"}
    assert read == {*re.findall(r"`(\w+)`", table()[name][0])}
    line = next(one for one in trainer.state.log_history if "images_encoded" in one)
    _, _, _, images, texts, _ = table()[name]
    phrases = max(map(len, rows["concepts"])) if trainer_class is C2LIPTrainer else 2
    assert line["images_encoded"] == 8 * int(images)
    if trainer_class is C2LIPTrainer:  # ragged: as many as each row has
        assert 8 < line["texts_encoded"] <= 8 * (1 + phrases)
        assert trainer.args.max_concepts == 8
    else:
        assert line["texts_encoded"] == 8 * int(words(texts, 2))


def test_every_recipe_of_the_table_exists():
    for row in table().values():
        for recipe in re.findall(r"recipes/(\w+)/README", row[2]):
            assert (recipes_folder() / f"{recipe}.py").is_file()
