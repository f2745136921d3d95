"""The Python of the pages runs as it stands, on small stand-ins for what it loads; ids, sizes and folders change."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPModel

import hfcomp
from hfcomp import CompositionalConfig, CompositionalTrainer, Embedder, cement_loss, info_nce_loss
from hfcomp.convert import export_onnx
from hfcomp.data.collators import too_few_negatives
from hfcomp.data.loading import load_training_set
from tests import tiny
from tests.analysis.pairs import models
from tests.convert import worlds
from tests.docs.snippets import ROOT, blocks
from tests.evaluation import small_sugarcrepe
from tests.factory.magic import sets

BASE = "openai/clip-vit-base-patch32"
RATINGS = "Word\tBigram\tConc.M\tConc.SD\tUnknown\tTotal\tPercent_known\tSUBTLEX\tDom_Pos\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)


def run(page: str, place: int = 0, changes: dict[str, str] | None = None, names: dict | None = None) -> dict:
    """Runs a block of a page and returns its names; each change must apply."""
    block, names = blocks(page)[place], {} if names is None else names
    for old, new in (changes or {}).items():
        assert old in block, f"{page} does not have {old!r}"
        block = block.replace(old, new)
    exec(block, names)
    return names


def save_pairs(name: str, **columns) -> str:
    """Images and captions that `load_dataset` reads from a folder of this name."""
    rows = tiny.pairs(8, ragged=False).select_columns(["image", "caption"])
    (folder := Path(name)).mkdir(parents=True)
    for column, values in columns.items():
        rows = rows.add_column(column, values)
    rows.to_parquet(folder / "train.parquet")
    return name


def test_replay(clip):
    tiny.pairs(8, ragged=False).save_to_disk("task")
    save_pairs("general")
    changes = {BASE: str(clip), "size=64": "size=4", "path/to/concretebatch": "task", "path/to/coco": "general"}
    trainer = run("docs/forgetting.md", changes=changes)["trainer"]
    assert len(next(iter(trainer.get_train_dataloader()))["row"]) == 8


def test_published_numbers(capsys):
    run("docs/published.md")
    assert capsys.readouterr().out.splitlines() == [
        "8.8 FSC-CLIP Table 1",
        "9.00 MTEB Winoground.json",
        "7.50 Slipform Table 2",
        "8.00 Winoground Table 3",
    ]


@pytest.mark.parametrize(("place", "model"), [(0, "mean color"), (1, "colors of patches")])
def test_the_objects_of_a_user_are_evaluated(place, model, capsys):
    tiny.pairs(24).to_parquet("rows.parquet")  # the sandbox's images take a minute
    run("docs/models.md", place, changes={'"sandbox"': '["rows.parquet"]'})
    assert model in capsys.readouterr().out


def test_parsing():
    assert run("docs/parsing.md")["parser"].name.startswith("rules")


def test_swaps_and_hard_positives(capsys):
    run("docs/datasets.md", 3)
    assert "sofa" in capsys.readouterr().out


def test_a_transform(clip):
    changes = {BASE: str(clip), "max_steps=1": "per_device_train_batch_size=4, max_steps=1"}
    namespace = run("docs/datasets.md", 1, changes, names={"rows": tiny.pairs(8, ragged=False)})
    namespace["trainer"].train()


def test_overlap(tmp_path, capsys):
    small_sugarcrepe.write(tmp_path / "data", per_subset=1)
    rows = datasets.Dataset.from_list([{"image": tiny.image(row), "caption": "a cube"} for row in (0, 100)])
    namespace = run("docs/datasets.md", 2, names={"rows": rows})
    assert namespace["found"].total == 2 and len(namespace["kept"]) < 2
    assert "1 of 2 training rows" in capsys.readouterr().out


def test_sandbox():
    run("docs/sandbox.md", changes={"8000": "16", "200": "4"})
    assert datasets.load_dataset("pairs", split="train").num_rows == 16


def test_statistics_of_one_benchmark(capsys):
    run("docs/statistics.md", 0)
    assert "tuned - plain: +" in capsys.readouterr().out


def test_statistics_of_stored_items(clip, tmp_path, capsys):
    small_sugarcrepe.write(tmp_path / "data", per_subset=3)
    compared = {"base": str(clip), "tuned": str(tiny.clip(tmp_path / "tuned", seed=5))}
    data = {"sugarcrepe": "data/sugarcrepe", "val2017": "data/val2017"}
    hfcomp.evaluate(compared, benchmarks=["sugarcrepe"], data=data).save("runs/evaluation")
    run("docs/statistics.md", 1)
    assert "macro" in capsys.readouterr().out


def test_the_examples_of_ahnpl(clip, tmp_path, capsys):
    small_sugarcrepe.write(tmp_path / "data", per_subset=3)
    compared = {"clip": str(clip), "ours": str(tiny.clip(tmp_path / "ours", seed=5))}
    data = {"sugarcrepe": "data/sugarcrepe", "val2017": "data/val2017"}
    results = hfcomp.evaluate(compared, benchmarks=["sugarcrepe"], data=data)
    results.save("runs/ahnpl-table4")
    caption = tiny.captions()[0]  # of the first item of the first subset
    shown = run("recipes/ahnpl/README.md", changes={"A man is flying a kite at the beach.": caption})["shown"]
    subset, item, _ = shown.index[0]
    scores = shown.loc[subset, item]["ours"].to_dict()  # of the caption and its negative
    wanted = {"subset": subset, "item": item, "arm": "ours", "metric": "caption choice"}
    (value,) = results.outcomes.select(**wanted).table["value"]
    assert value == (scores.pop(caption) > next(iter(scores.values())))
    assert caption[:20] in capsys.readouterr().out


def test_files_of_your_own(clip):
    rows = ["filepath\ttitle"]
    for number in range(8):
        tiny.image(number).save(f"{number}.png")
        rows.append(f"{number}.png\t{tiny.captions()[number]}")
    Path("pairs.tsv").write_text("\n".join(rows))
    namespace = run(
        "docs/datasets.md", 0, {BASE: str(clip), "num_train_epochs=1": "per_device_train_batch_size=4, max_steps=1"}
    )
    assert namespace["trainer"].train().training_loss > 0


def test_adapters(clip, tmp_path):
    changes = {BASE: str(clip), "num_train_epochs=5": "per_device_train_batch_size=4, max_steps=1, warmup_steps=0"}
    run("docs/adapters.md", 0, changes, {"rows": tiny.pairs(8)})
    run("docs/adapters.md", 1)
    assert CLIPModel.from_pretrained("runs/cement-merged")


def test_conversion(old_clip, capsys):
    network = worlds.model(worlds.Shape(head_width=64, text_heads=1), worlds.vocabulary(old_clip), act="quick_gelu")
    torch.save(worlds.state(network), "negclip.pth")
    run(
        "docs/conversion.md",
        changes={'pretrained="openai"': f'pretrained="openai", head_width=64, processor="{old_clip}"'},
    )
    assert "quick_gelu" in capsys.readouterr().out


def test_onnx(clip):
    pytest.importorskip("onnxruntime")
    export_onnx(clip, Path("models/onnx"))
    tiny.image(0).save("photo.jpg")
    names = run("docs/conversion.md", 1)
    np.testing.assert_allclose(names["texts"], Embedder(clip).texts(names["words"]).vectors, atol=2e-6)


def test_trackers():
    assert run("docs/trackers.md")["args"].report_to == ["trackio"]


def test_analysis_of_pairs(clip, tmp_path):
    models.pairs(10).save_to_disk("runs/concretebatch")
    colors = "".join(f"{word}\t0\t4.5\t0\t0\t0\t1\t9\tAdjective\n" for word in models.COLORS)
    (tmp_path / "ratings.txt").write_text(RATINGS + colors + "cube\t0\t5\t0\t0\t0\t1\t9\tNoun\n")
    off = f'models=["{clip}"], image_model="none", text_model="none", device="cpu", gallery=0, concreteness_ratings='
    run("docs/analyze.md", changes={"concreteness_ratings=": off})
    assert (tmp_path / "runs/analyze/report.md").is_file()


def test_attention(clip, siglip, tmp_path):
    tiny.image(0).save("image.jpg")
    run("docs/attention.md", changes={BASE: str(clip), "runs/c2lip": str(siglip)})
    with Image.open("attention.png") as picture:
        assert picture.format == "PNG"
    assert (tmp_path / "attention.json").is_file()


def test_a_build(capsys):
    source = save_pairs("pairs")
    run("docs/building.md", 0, changes={"my-org/my-pairs": source, "kinds=": 'parser="rules", kinds='})
    assert capsys.readouterr().out.splitlines()[-1].startswith("8 ")
    assert load_training_set("data/negatives")["negative_captions"][0]


@pytest.mark.slow
def test_a_build_of_your_own(tmp_path):
    """As a file, which the workers import."""
    (block,) = (block for block in blocks("docs/building.md") if "run_stages" in block)
    source = save_pairs("pairs")
    (tmp_path / "build.py").write_text(
        block.replace("my-org/my-pairs", source).replace("num_workers=4", "num_workers=2")
    )
    done = subprocess.run([sys.executable, "build.py"], capture_output=True, text=True, env=_environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("8 ")


@pytest.mark.slow
def test_levels(clip, siglip, tmp_path):
    small = {BASE: str(clip), "runs/clear_glass": str(siglip), "candidates=": "rows=24, candidates="}
    run("docs/levels.md", changes=small)
    assert (tmp_path / "runs/levels/levels.png").is_file()


def test_a_probe(clip):
    models.pairs(12).save_to_disk("pairs")
    small = {BASE: str(clip), "me/my-pairs": "pairs", "128, 1024": "2, 6"}
    shares = run("docs/probe.md", changes=small)["shares"]
    assert len(shares) == 2 * 4 * 3 and shares["value"].between(0, 1).all()


def test_a_built_hierarchy(tmp_path):
    sets.build_magic(tmp_path / "data")
    namespace = run("docs/magic.md")
    assert len(namespace["train"]) and "level_1" in namespace["test"].column_names


def test_the_page_on_design(clip, tmp_path):
    image, text, negative_image, negative_text = torch.nn.functional.normalize(torch.randn(4, 6, 8), dim=-1)
    values = {"scale": torch.tensor(10.0), "margin": torch.ones(6), "rows": slice(0, 6), "cement_loss": cement_loss}
    pairs = {"image": image, "text": text, "negative_image": negative_image, "negative_text": negative_text}
    assert run("docs/design.md", 2, names={**pairs, **values})["loss"].isfinite()
    compute_loss = run("docs/design.md", 3, names={"info_nce_loss": info_nce_loss})["compute_loss"]
    trainer_class = type("Trainer", (CompositionalTrainer,), {"compute_loss": compute_loss})
    config = CompositionalConfig(str(tmp_path), max_steps=1, per_device_train_batch_size=4, report_to="none")
    assert trainer_class(clip, config, train_dataset=tiny.pairs(8)).train().training_loss > 0


def test_contributing_quotes_a_test_and_a_message():
    (block,) = blocks("CONTRIBUTING.md")
    assert block in (ROOT / "tests/advice/test_cli.py").read_text()
    page = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    assert f"ValueError: {too_few_negatives(17, 3, 4)} ```" in page


def test_groups_of_your_own():
    save_pairs("my-org/my-pairs", concept=["birthday", "wedding", "graduation", "wedding"] * 2)
    run("recipes/clear_glass/README.md")
    assert load_training_set("my-groups")["hard_negative_groups"][:3] == [["wedding", "graduation"], ["birthday"], []]


def test_the_published_chains():
    chain = " => ".join(["a thing", "an animal", "a dog", "a dog on a sofa"])
    with gzip.open("hierarcaps_train.csv.gz", "wt") as file:
        file.write(f"positive,negative\n{chain},{chain.replace('dog', 'cat')}\n")
    run("recipes/hierarcaps/README.md")
    rows = load_training_set("data/hierarcaps")
    assert rows["level_1"][0] == "a dog" and rows["negative_captions"][0][2] == "a cat"


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
