"""The table of objectives: its columns are those that the trainers read, its costs those that a step counts."""

from __future__ import annotations

import importlib
import inspect
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
    """Replaces a cell by its number for a row with this number of negatives or phrases."""
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
    line = next(entry for entry in trainer.state.log_history if "images_encoded" in entry)
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


def peer_row(name: str) -> list[str]:
    """The cells of a row on another library: its name, what it does better and what it lacks."""
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and name in line.split("|")[1]]
    return line.strip("| ").split(" | ")


@pytest.mark.parametrize("negatives", ["captions", "images"])
def test_sentence_transformers_trains_on_negatives_with_a_fixed_scale(clip, negatives):
    peer = pytest.importorskip("sentence_transformers", reason="a peer: pip install 'hfcomp[magic]'")
    losses = importlib.import_module("sentence_transformers.sentence_transformer.losses")
    _, better, lacks = peer_row("sentence-transformers")
    assert f"negative {negatives}" in better and f"negative {negatives}" not in lacks
    assert "learned `logit_scale`" in lacks and "sigmoid" in lacks and "20 by default" in lacks
    model = peer.SentenceTransformer(str(clip), device="cpu")
    loss = losses.MultipleNegativesRankingLoss(model)
    texts, images = tiny.captions()[:8], [tiny.image(number) for number in range(8)]
    columns = [images[:4], texts[:4], texts[4:]] if negatives == "captions" else [texts[:4], images[:4], images[4:]]
    loss([model.preprocess(column) for column in columns], None).backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    for tower in ("vision_model", "text_model"):
        assert any(
            gradient is not None and gradient.abs().sum() > 0 for name, gradient in gradients.items() if tower in name
        )
    # a number, and no parameter beyond the model's, whose own scale gets no gradient
    assert loss.scale == 20 and len([*loss.parameters()]) == len(gradients)
    assert [gradient for name, gradient in gradients.items() if "logit_scale" in name] == [None]
    assert not [name for name in dir(losses) if "sigmoid" in name.lower()]
    assert hasattr(losses, "CachedMultipleNegativesRankingLoss")
    assert "gather_across_devices" in inspect.signature(losses.MultipleNegativesRankingLoss).parameters


@pytest.mark.parametrize("name", ["sentence-transformers", "open_clip", "TRL", "run_clip.py"])
def test_what_is_said_of_a_peer_has_a_version_or_a_date(name):
    assert re.search(r"\d+\.\d+|20\d\d-\d\d", peer_row(name)[0])
