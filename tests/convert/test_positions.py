"""Stretched text positions, and models with more positions than CLIP."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import CLIPModel

from hfcomp import Embedder, cli
from hfcomp.convert import stretch_positions
from hfcomp.convert.positions import stretch
from hfcomp.trainers import InfoNCEConfig, InfoNCETrainer
from tests import families, tiny

SHORT = ["a red cube on a blue ball", "a ring"]
LONG = " ".join(["cube"] * 246)  # one token each, and two around them


@pytest.fixture(scope="module")
def stretched(clip, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stretched") / "clip"
    cli.main(["convert", str(clip), "--stretch_positions", "248", "--output", str(folder)])
    return folder


def test_a_table_is_interpolated_as_in_the_paper():
    table = torch.randn(77, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = [table[row] for row in range(20)]
    for position in range(20, 248):
        row, rest = divmod(position - 20, 4)
        row += 20
        step = table[row + 1] - table[row] if row < 76 else table[76] - table[75]
        rows.append(table[row] + rest / 4 * step)
    torch.testing.assert_close(stretch(table, 248), torch.stack(rows), rtol=0, atol=1e-14)


def test_short_texts_embed_as_before_and_long_ones_are_not_cut(clip, stretched):
    before, after = Embedder(clip), Embedder(stretched)
    np.testing.assert_allclose(after.texts(SHORT).vectors, before.texts(SHORT).vectors, atol=2e-6)
    np.testing.assert_allclose(after.images([tiny.image(0)]), before.images([tiny.image(0)]), atol=2e-6)
    # The number of tokens comes from the model, as many tokenizers on the Hub still say 77.
    settings = json.loads((stretched / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 248
    (stretched / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 77}))
    texts = Embedder(stretched).texts([LONG, f"{LONG[:-4]}ball"])
    assert texts.truncated == 0 and np.abs(np.diff(texts.vectors, axis=0)).max() > 1e-4
    assert Embedder(stretched).texts([f"{LONG} cube"]).truncated == before.texts([LONG]).truncated == 1


def test_it_is_trained_and_loaded_by_transformers(stretched, tmp_path):
    args = InfoNCEConfig(str(tmp_path / "run"), max_steps=1, learning_rate=1e-2, warmup_steps=0)
    rows = tiny.pairs(8).map(lambda row: {"caption": f"{row['caption']} {LONG}"})
    trainer = InfoNCETrainer(model=str(stretched), args=args, train_dataset=rows)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    tables = [
        CLIPModel.from_pretrained(folder).text_model.embeddings.position_embedding.weight
        for folder in (stretched, tmp_path / "saved")
    ]
    changed = (tables[0] != tables[1]).any(-1)
    assert changed.shape == (248,) and changed[247]


def test_a_tower_that_reads_its_padding_says_so(siglip, tmp_path):
    record = stretch_positions(siglip, tmp_path / "siglip", 36)
    assert record["positions"] == {"before": 24, "after": 36, "kept": 20} and "padding" in record["note"]


@pytest.mark.parametrize(
    ("name", "positions", "said"),
    [
        ("clip", 24, "found 24 for a table of 24"),
        ("clip", 30, "found 30 .* 20 plus a multiple of 4, such as 28, 32, 36"),
        ("chinese_clip", 36, "ChineseCLIPModel has no .*position_embedding"),
        ("tipsv2", 36, "Tipsv2Model has no .*position_embedding"),
    ],
)
def test_tables_that_cannot_be_stretched_are_named(name, positions, said, tmp_path):
    if name not in families.dual_encoders():
        pytest.skip(f"this transformers has no {name}")
    with pytest.raises(ValueError, match=said):
        stretch_positions(families.write_family(tmp_path / name, name), tmp_path / "out", positions)
