"""The Python of README and docs runs as it stands, on small stand-ins for what it loads from the Hub."""

from __future__ import annotations

import re
from pathlib import Path

import datasets
import pytest

from hfcomp import CompositionalConfig
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.engine import run_benchmark, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Folders
from tests import tiny
from tests.evaluation import small_sugarcrepe

REPOSITORY = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), flags=re.DOTALL)


@pytest.fixture
def small(clip, tmp_path, monkeypatch):
    """Replaces ids, sizes and folders; the rest of a block stays as the page has it."""
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: tiny.pairs(8))

    def change(block: str) -> str:
        for old, new in {
            "openai/clip-vit-base-patch32": str(clip),
            "runs/cement": str(tmp_path / "cement"),
            "per_device_train_batch_size=256": "per_device_train_batch_size=8, max_steps=1",
        }.items():
            block = block.replace(old, new)
        return block

    return change


def test_the_readme_trains_and_evaluates(small, tmp_path, capsys):
    train, evaluate = blocks("README.md")
    exec(small(train), {})
    data = small_sugarcrepe.write(tmp_path / "data", per_subset=1)
    evaluate = small(evaluate).replace('suite="compositional"', 'benchmarks=["sugarcrepe"]')
    places = f'"sugarcrepe": "{data}/sugarcrepe", "val2017": "{data}/val2017"'
    for old, new in {'"val2017": "coco/val2017"': places, "runs/eval": str(tmp_path / "eval")}.items():
        evaluate = evaluate.replace(old, new)
    exec(evaluate, {})
    assert re.search(r"cement minus clip\d*: SugarCrepe", capsys.readouterr().out)
    assert (tmp_path / "eval" / "report.md").is_file()


def test_the_objective_of_the_docs_trains(clip, tmp_path):
    (block,) = blocks("docs/adding_an_objective.md")
    names: dict = {"__name__": "my_module"}
    exec(block, names)
    config = CompositionalConfig(str(tmp_path), max_steps=2, per_device_train_batch_size=4)
    trainer = names["MyTrainer"](clip, config, train_dataset=tiny.pairs(8))
    trainer.train()
    assert trainer.model.objective_state["temperature"].logarithm.item() != 0


def test_evaluation_from_python_runs(clip, tmp_path, monkeypatch, capsys):
    evaluate, embed, *_ = blocks("docs/benchmarks.md")
    small_sugarcrepe.write(tmp_path, per_subset=1)
    (tmp_path / "my").mkdir()
    tiny.pairs(8, ragged=False).to_parquet(tmp_path / "my" / "pairs.parquet")
    tiny.clip(tmp_path / "runs" / "cement", seed=5)
    monkeypatch.chdir(tmp_path)
    evaluate = evaluate.replace("openai/clip-vit-base-patch32", str(clip)).replace("coco/val2017", "val2017")
    names: dict = {}
    exec(evaluate.replace("data={", 'data={"sugarcrepe": "sugarcrepe", '), names)
    assert "ours minus base" in capsys.readouterr().out
    assert str(names["again"]) == str(names["results"])
    assert list(names["both"].models) == ["ours", "base"] and set(names["table"]["model"]) == {"base", "ours"}
    names = {"photo": tiny.image(0)}
    exec(embed, names)
    assert names["texts"].shape == (2, 16)


def test_the_blocks_of_the_page_on_benchmarks_run(clip, tmp_path, capsys):
    _, _, module, own, training, keywords = blocks("docs/benchmarks.md")
    exec(module, {})
    assert "'accuracy': 0.5" in capsys.readouterr().out

    rows = tiny.pairs(8, ragged=False)
    columns = {"negatives": rows["negative_captions"][:], "kind": ["a", "b"] * 4}
    folder = tmp_path / "pairs"
    kept = rows.select_columns(["image", "caption"])
    for name, values in columns.items():
        kept = kept.add_column(name, values)
    folder.mkdir()
    kept.to_parquet(folder / "test-00000-of-00001.parquet")
    names: dict = {}
    exec(own, names)
    mine = names["MINE"]
    items = validate(mine, load_items(mine, Folders(own={"mine": folder})))
    report = run_benchmark(mine, items, Embedder(clip, device="cpu"))
    assert set(report.items["subset"]) == {"a", "b"} and len(report.items) == 8

    small_sugarcrepe.write(tmp_path / "data", per_subset=1)
    shorter = "per_device_train_batch_size=4, max_steps=2, eval_strategy"
    for old, new in {
        "openai/clip-vit-base-patch32": str(clip),
        "runs/plain": str(tmp_path / "plain"),
        "eval_strategy": shorter,
        "steps=100": "steps=1",
        '"data"': repr(str(tmp_path / "data")),
    }.items():
        training = training.replace(old, new)
    names = {"train": tiny.pairs(8), "held_out": tiny.pairs(4)}
    exec(training, names)
    assert names["trainer"].state.best_metric is not None

    names = {}
    exec(keywords, names)
    assert names["MINE"].name == "mine"
