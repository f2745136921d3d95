"""All numbers that the commands write, at small size, are those of the files beside this one (about 30 s).

`HFCOMP_WRITE_GOLDEN=1` writes the files anew, for a change that means to move numbers: their diff says which moved.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from hfcomp import cli
from tests.golden import rows
from tests.golden.record import check, contents

WRITE = os.environ.get("HFCOMP_WRITE_GOLDEN") == "1"
# an epsilon above the rounding of gradients: Adam makes a whole step of one that is nothing else
TRAINING = "--adam_epsilon 1e-4 --warmup_steps 0 --disable_tqdm true --save_strategy no --logging_steps 2"


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    for write in (rows.sugarcrepe, rows.flickr8k, rows.magic, rows.own):
        write(folder / "data")
    return folder


def run(root: Path, name: str, command: str) -> Path:
    """The folder that a command wrote, without figures, which take as long as a tiny model's training."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "matplotlib.figure", None)
        cli.main([*command.split(), "--output_dir", str(root / name)])
    return root / name


def write_config(root: Path, name: str, **values: object) -> str:
    path = root / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(path)


@pytest.fixture(scope="module")
def main_job(root) -> Path:
    size = "--dataset_rows 96 --batch_size 16 --max_steps 6 --evaluation_items 6 --learning_rate 1e-3 --seed 1"
    return run(root, "main", f"train slipform {size} {TRAINING}")


def test_the_main_job_with_all_controls(main_job, root):
    check("main", contents(main_job, root), write=WRITE)


@pytest.mark.slow
def test_a_sweep_on_a_benchmark_whose_subsets_share_images(root):
    sweep = write_config(
        root,
        "margins",
        seeds=[1, 2, 3],
        settings={"clean": {}, "edit_noise": {"edit_noise": 0.6}},
        variants={"none": {"margin": "none"}, "adaptive": {"margin": "adaptive"}},
        reference="none",
        contrasts={"trained": {"with": ["none", "adaptive"], "without": ["base"]}},
        logged=["margin"],
        benchmarks=["SugarCrepe"],
    )
    size = "--dataset_rows 48 --batch_size 16 --max_steps 4 --learning_rate 1e-3"
    data = f"--evaluation_data sugarcrepe={root / 'data/sugarcrepe'} val2017={root / 'data/val2017'}"
    scored = f"--evaluation benchmarks --evaluation_benchmarks sugarcrepe --primary SugarCrepe:* {data}"
    folder = run(root, "sweep", f"train slipform --report {sweep} {size} {TRAINING} {scored}")
    check("sweep", contents(folder, root), write=WRITE)


@pytest.mark.slow
def test_a_sweep_of_ahnpl_that_follows_embeddings(root):
    sweep = write_config(
        root,
        "ahnpl",
        seeds=[1],
        settings={"clean": {}},
        variants={
            "plain": {"objective": "hfcomp.trainers.info_nce:InfoNCETrainer", "num_negatives": 0},
            "negatives": {"multimodal_weight": 0.0, "positive_margin_weight": 0.0, "negative_margin_weight": 0.0},
            "all": {},
        },
        reference="negatives",
        benchmarks=["sandbox", "sandbox retrieval"],
        embeddings={"variants": ["negatives", "all"], "rows": 12, "checkpoints": 2, "examples": 1},
    )
    size = "--dataset_rows 48 --batch_size 16 --max_steps 4 --learning_rate 1e-3 --evaluation_items 4"
    folder = run(root, "followed", f"train ahnpl --report {sweep} {size} {TRAINING}")
    check("followed", contents(folder, root), write=WRITE)


@pytest.mark.slow
def test_the_study_of_concepts(root):
    study = write_config(
        root,
        "tradeoff",
        concepts={"color": [1, 2], "location": [1]},
        checkpoints_per_epoch=2,
        accuracy={"benchmark": "sandbox keywords", "metric": "top-1"},
        retrieval={"benchmark": "sandbox retrieval", "metric": "text-to-image recall@5"},
        visual={"benchmark": "sandbox edited", "metric": "image"},
        further=["sandbox lone objects"],
    )
    size = "--dataset_rows 96 --batch_size 8 --num_train_epochs 1 --evaluation_items 8 --learning_rate 1e-3"
    folder = run(root, "tradeoff", f"train hard_negatives --report {study} {size} {TRAINING}")
    check("tradeoff", contents(folder, root), write=WRITE)


def test_a_search_on_a_set_of_ones_own(root):
    pytest.importorskip("optuna", reason="searches need Optuna: pip install 'hfcomp[search]'")
    search = write_config(
        root,
        "search",
        maximize="own: *",
        trials=3,
        ranges={
            "learning_rate": {"low": 1e-4, "high": 2e-3, "log": True},
            "margin": {"choices": ["none", "static"]},
            "batch_size": {"low": 8, "high": 16, "int": True},
        },
    )
    size = f"--dataset {root / 'data/pairs'} --max_steps 3 --fresh_model sandbox"
    scored = "--evaluation own --evaluation_split test"
    folder = run(root, "search", f"train slipform --search {search} {size} {TRAINING} {scored}")
    check("search", contents(folder, root), write=WRITE)


@pytest.fixture(scope="module")
def evaluations(main_job, root) -> list[Path]:
    """Two models in one folder, a third in another."""
    words = f"--data_dir {root / 'data'} --benchmarks sugarcrepe,flickr8k,magic --device cpu --no_cache"
    models = {name: main_job / name for name in ("base", "method", "controls/plain")}
    two = f"base={models['base']} Slipform={models['method']} --blind shorter"
    plain = f"plain={models['controls/plain']}"
    return [run(root, "evaluation", f"evaluate {two} {words}"), run(root, "other", f"evaluate {plain} {words}")]


def test_models_on_benchmarks(evaluations, root):
    check("evaluate", contents(evaluations[0], root), write=WRITE)


def test_stored_results_against_each_other(evaluations, root):
    first, second = evaluations
    folder = run(root, "comparison", f"compare {first}:base {first}:Slipform {second} --reference plain")
    report = (folder / "report.md").read_text(encoding="utf-8").partition("\n## Data")[0]
    check("compare", {**contents(folder, root), "report.md": report.splitlines()}, write=WRITE)
