"""The Python of README and docs runs as it stands, on small stand-ins for what it loads from the Hub."""

from __future__ import annotations

import csv
import os
import re
import shlex
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from datasets import load_dataset
from transformers import CLIPModel

from hfcomp import CompositionalConfig
from hfcomp.cli import main
from hfcomp.sandbox import training_set
from tests import tiny
from tests.evaluation import small_sugarcrepe

REPOSITORY = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), flags=re.DOTALL)


@pytest.fixture(params=["sandbox", "photographs"])
def photos(request, tmp_path, monkeypatch) -> list[str]:
    """Images and captions of a newcomer below the working directory, and how `--source` names them."""
    monkeypatch.chdir(tmp_path)
    if request.param == "photographs":
        if not os.environ.get("HFCOMP_REAL_DATA"):
            pytest.skip("HFCOMP_REAL_DATA is not set: a folder of photographs with captions")
        file = Path(os.environ["HFCOMP_REAL_DATA"]) / "coco_open_256.jsonl"
        return [str(file), "--column_names", "caption=captions", "--limit", "100"]
    with open("photos.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "caption"])
        for number, row in enumerate(training_set(100, 3)):
            row["image"].save(f"{number}.png")
            rows.writerow([f"{number}.png", row["caption"]])
    return ["photos.csv"]


@pytest.fixture
def installed_as_the_quick_start_says(monkeypatch) -> None:
    """Hides the packages of all extras but those that the quick start installs."""
    section = (REPOSITORY / "README.md").read_text().partition("## Quick start")[2].partition("```bash")[0]
    (named,) = re.findall(r'`pip install -e "\.\[([\w,]+)\]"`', section)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = {name: {re.match(r"[\w.-]+", requirement)[0] for requirement in extras[name]} for name in extras}
    kept = {re.match(r"[\w.-]+", requirement)[0] for requirement in project["dependencies"]}.union(
        *map(names.get, named.split(","))
    )
    hidden = set().union(*names.values()) - kept - {"hfcomp", "pytest"}
    modules = {module for module, owners in packages_distributions().items() if hidden & {*owners}}
    assert {"sklearn", "matplotlib", "diffusers"} <= modules and not modules & {"spacy", "torch"}
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def quick_start(photos: list[str], clip: Path) -> list[list[str]]:
    """The words of README's commands, on these photographs and a tiny model."""
    section = (REPOSITORY / "README.md").read_text().partition("## Quick start")[2]
    (block,) = re.findall(r"```bash\n(.*?)```", section.partition("\n## ")[0], flags=re.DOTALL)
    commands = []
    for line in block.splitlines():
        words = line.replace("openai/clip-vit-base-patch32", str(clip)).split()
        place = words.index("photos.csv") if "photos.csv" in words else None
        commands.append(words[1:] if place is None else [*words[1:place], *photos, *words[place + 1 :]])
    return commands


@pytest.mark.usefixtures("installed_as_the_quick_start_says")
def test_the_quick_start_runs_in_the_terminal(photos, clip, tmp_path, capsys):
    build, train, evaluate = quick_start(photos, clip)
    main(build)
    assert load_dataset("data/negatives", split="train").num_rows == 100
    steps = ["--max_steps", "2", "--save_strategy", "no", "--disable_tqdm", "true"]
    main([*train, "--model", str(clip), *steps])
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"batch_size .*\b128 to 11: the 90 training images", said)
    assert "own" in said and "plain" in said and "change general abilities?" in said and "On this seed." in said
    data = small_sugarcrepe.write(tmp_path / "data", per_subset=1)
    suite = evaluate.index("--suite")
    places = ["--data", f"sugarcrepe={data}/sugarcrepe", "--data", f"val2017={data}/val2017", "--no_cache"]
    main([*evaluate[:suite], "--benchmarks", "sugarcrepe", *places])
    assert re.search(r"tuned minus base: SugarCrepe", capsys.readouterr().out)

    page = (REPOSITORY / "docs/benchmarks.md").read_text().partition("**Your own data**")[2]
    other, compare = re.findall(r"^hfcomp (evaluate .*--split.*|compare .*)$", page, re.MULTILINE)
    main([*shlex.split(other.replace("my-org/other-model", str(clip))), "--no_cache"])
    main(shlex.split(compare))
    said = " ".join(capsys.readouterr().out.split())
    assert "are both" in said and "negatives" in said


def test_the_quick_start_runs_in_python(photos, clip, tmp_path, capsys):
    main(quick_start(photos, clip)[0])
    block, *_ = blocks("README.md")
    sizes = {"per_device_train_batch_size=128": "per_device_train_batch_size=8, max_steps=1"}
    for old, new in {"openai/clip-vit-base-patch32": str(clip), **sizes}.items():
        assert old in block
        block = block.replace(old, new)
    exec(block, {})
    assert "image-to-text" in capsys.readouterr().out
    assert CLIPModel.from_pretrained("runs/tuned")


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
    _, _, module, training, keywords = blocks("docs/benchmarks.md")
    exec(module, {})
    assert "'accuracy': 0.5" in capsys.readouterr().out

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


def test_the_benchmark_of_the_docs_runs(clip, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mine, check = blocks("docs/adding_a_benchmark.md")
    rows = tiny.pairs(8, ragged=False)
    columns = {"negatives": rows["negative_captions"][:], "kind": ["a", "b"] * 4}
    folder = Path("my/folder")
    kept = rows.select_columns(["image", "caption"])
    for name, values in columns.items():
        kept = kept.add_column(name, values)
    folder.mkdir(parents=True)
    kept.to_parquet(folder / "test-00000-of-00001.parquet")
    names: dict = {}
    exec(mine, names)
    exec(check.replace("openai/clip-vit-base-patch32", str(clip)), names)
    report = names["report"]
    assert set(report.items["subset"]) == {"a", "b"} and len(report.items) == 8
    Path("my_module.py").write_text(mine)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_module", raising=False)  # of another test
    words = [
        "evaluate",
        str(clip),
        "--benchmarks",
        "my_module:MINE",
        "--data",
        "mine=my/folder",
        "--blind",
        "constant",
    ]
    main([*words, "--no_cache"])
    assert "mean of kinds" in capsys.readouterr().out
