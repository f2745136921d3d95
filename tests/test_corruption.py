"""Each file that is read back, damaged in each way: the same result as undamaged, or an error that names the file.

A truncated or zeroed file fails where a flipped bit does, at its checksum or its format: of most files these two ways
are slow tests. So is the loss of a checkpoint's file, as tests/trainers/test_stages.py damages each in every way.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from hfcomp.cli import main
from hfcomp.data.loading import load_training_set
from hfcomp.data.overlap.image_hashes import RECORD, HashStore
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.factory.manifest import open_build
from hfcomp.factory.runner import Build, Stage, run_stages
from tests import tiny
from tests.factory import builds

pytestmark = pytest.mark.usefixtures("without_figures")

FIELDS = (
    "--batch_size 8 --max_steps 6 --save_steps 2 --save_total_limit 3 --logging_steps 3 --evaluation own "
    "--controls none --num_negatives 2 --disable_tqdm true --page false"
)
CHECKPOINT = "method/checkpoint-4"
LAST = ("stage.json", "history.json", "model.safetensors", "objective_state.safetensors")
# What an error says that helps: what to do about the file.
FIXES = ("remove", "delete", "re-run", "start the", "put", "evaluate again", "download", "choose", "pass", "resume")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


DAMAGES: dict[str, Callable[[Path], None]] = {"flip": flip, "truncate": truncate, "zero": zero, "delete": Path.unlink}
OFTEN = ("flip", "delete")


def matrix(*files: str) -> Any:
    """A case for each file and damage; by default all of the first file, and of a checkpoint a flipped bit."""
    cases = []
    for name, damage in itertools.product(files, DAMAGES):
        slow = damage != "flip" if CHECKPOINT in name else name != files[0] and damage not in OFTEN
        cases.append(pytest.param(name, damage, id=f"{name}-{damage}", marks=[pytest.mark.slow] if slow else []))
    return pytest.mark.parametrize(("name", "damage"), cases)


def damage_copy(folder: Path, target: Path, name: str, damage: str) -> Path:
    """A copy of a folder with one file damaged; the others are the same files on disk."""
    shutil.copytree(folder, target, copy_function=os.link)
    path = target / name
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)  # a file of its own
    DAMAGES[damage](path)
    return path


@contextlib.contextmanager
def named_error(path: Path):
    """Lets an error pass that names the file, or its folder, and says what to do."""
    try:
        yield
    except (SystemExit, ValueError, OSError) as error:
        text = str(error)
        assert path.name in text or str(path.parent) in text, text
        assert any(word in text.lower() for word in FIXES), text


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    datasets.DatasetDict({"train": tiny.pairs(16), "test": tiny.pairs(8)}).save_to_disk(folder)
    return folder


def train(rows: Path, folder: Path) -> None:
    given = ["--primary", "own: caption choice", "--dataset", str(rows), "--output_dir", str(folder)]
    main(["train", "ceclip", *FIELDS.split(), *given])


def numbers(folder: Path) -> Any:
    """What a run found: of the folder that was asked for, or of the next where that one was left alone."""
    ended = [path for path in (folder, folder.with_name(f"{folder.name}-2")) if (path / "finished").exists()]
    assert ended, "neither an error nor a result"
    report = json.loads((ended[-1] / "results.json").read_text())
    weights = {name: facts["weights"] for name, facts in report["models"].items()}
    return report["results"], weights, report["data"]["items"]


@pytest.fixture(scope="module")
def run(rows, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(rows, folder)
    return folder


@pytest.fixture(scope="module")
def almost(run, tmp_path_factory) -> Path:
    """The run as it was before its report."""
    folder = tmp_path_factory.mktemp("almost") / "run"
    shutil.copytree(run, folder, copy_function=os.link)
    (folder / "finished").unlink()
    return folder


@pytest.fixture(scope="module")
def stopped_run(almost, tmp_path_factory) -> Path:
    """The run as it was after the second checkpoint of its method, two steps before the end."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    shutil.copytree(almost, folder, copy_function=os.link)
    for name in LAST:
        (folder / "method" / name).unlink()
    (folder / "evaluation" / "CE-CLIP.parquet").unlink()
    shutil.rmtree(folder / "method" / "checkpoint-6")
    return folder


def goes_on(rows: Path, run: Path, start: Path, target: Path, name: str, damage: str) -> None:
    path = damage_copy(start, target, name, damage)
    with named_error(path):
        train(rows, target)
        assert numbers(target) == numbers(run)


@matrix(
    *("config.yaml", "overlap.json"),
    *(f"method/{name}" for name in ("stage.json", "history.json", "config.json", "model.safetensors")),
    "method/objective_state.safetensors",
    *(f"base/{name}" for name in ("config.json", "model.safetensors")),
    *(f"evaluation/{name}.parquet" for name in ("base", "CE-CLIP")),
)
def test_a_run_before_its_report(rows, run, almost, tmp_path, name, damage):
    goes_on(rows, run, almost, tmp_path / "run", name, damage)


@matrix(
    *(
        f"{CHECKPOINT}/{name}"
        for name in ("trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors")
    ),
    f"{CHECKPOINT}/objective_state.safetensors",
    *("base/tokenizer.json", "base/processor_config.json"),
)
def test_a_run_stopped_behind_its_last_checkpoint(rows, run, stopped_run, tmp_path, name, damage):
    goes_on(rows, run, stopped_run, tmp_path / "run", name, damage)


@matrix("items.parquet", "results.json")
def test_results_that_are_compared(run, tmp_path, capsys, name, damage):
    main(["compare", str(run)])
    expected = capsys.readouterr().out
    path = damage_copy(run, tmp_path / "run", name, damage)
    with named_error(path):
        main(["compare", str(tmp_path / "run")])
        assert capsys.readouterr().out == expected


SEARCH = "maximize: 'own: *recall@1'\ntrials: 2\nranges:\n  learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}\n"


def search(rows: Path, folder: Path, file: Path) -> None:
    given = ["--max_steps", "1", "--evaluation", "own", "--primary", "own: caption choice", "--controls", "none"]
    given += ["--batch_size", "8", "--disable_tqdm", "true", "--dataset", str(rows), "--output_dir", str(folder)]
    main(["train", "slipform", "--search", str(file), *given])


@pytest.fixture(scope="module")
def searched_folder(rows, tmp_path_factory) -> Path:
    pytest.importorskip("optuna", reason="searches need Optuna: pip install 'hfcomp[search]'")
    folder = tmp_path_factory.mktemp("searches")
    (folder / "mine.yaml").write_text(SEARCH)
    search(rows, folder / "search", folder / "mine.yaml")
    (folder / "search" / "finished").unlink()
    return folder


@matrix("search.db", "search.json")
def test_a_search_before_its_report(rows, searched_folder, tmp_path, name, damage):
    expected = json.loads((searched_folder / "search" / "search.json").read_text())["trials"]
    path = damage_copy(searched_folder / "search", tmp_path / "search", name, damage)
    with named_error(path):
        search(rows, tmp_path / "search", searched_folder / "mine.yaml")
        ended = [folder for folder in (tmp_path / "search-2", tmp_path / "search") if (folder / "finished").exists()]
        trials = json.loads((ended[0] / "search.json").read_text())["trials"]
        for trial, expected_trial in zip(trials, expected, strict=True):
            assert (trial["values"], trial["value"]) == (expected_trial["values"], expected_trial["value"])


@pytest.fixture(scope="module")
def built_set(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    captions = [f"a red car beside a blue house {number}" for number in range(30)] + [""]
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps({"caption": caption}) + "\n" for caption in captions))
    given = ["--source", str(source), "--kinds", "keyword:color", "--shard_size", "10"]
    main(["build", "negatives", *given, "--output", str(folder / "set")])
    return folder / "set"


@matrix("manifest.json", "data/train-00001-of-00004.parquet", "set_aside.jsonl", "README.md")
def test_a_built_set_that_is_loaded(built_set, tmp_path, name, damage):
    path = damage_copy(built_set, tmp_path / "set", name, damage)
    with named_error(path):
        assert load_training_set(str(tmp_path / "set")).to_list() == load_training_set(str(built_set)).to_list()


@pytest.fixture(scope="module")
def unfinished_build(tmp_path_factory) -> tuple[Path, Path]:
    """A build without its last shard, and the whole of it."""
    folder = tmp_path_factory.mktemp("builds")
    whole = build(folder / "whole")
    shutil.copytree(whole.folder, folder / "part")
    last = whole.manifest["shards"][-1]["file"]
    for name in (last, "set_aside.jsonl"):
        (folder / "part" / name).unlink()
    open_build(folder / "part", whole.manifest["plan"], len(whole.manifest["shards"]))
    return folder / "part", whole.folder


def build(folder: Path) -> Build:
    stage = Stage("loud", builds.make_loud, {"mark": "!"})
    return run_stages(builds.source(), [stage], folder, features=builds.FEATURES, rows_per_shard=4)


@matrix(".build/plan.json", ".build/00000.json", "data/train-00000-of-00003.parquet")
def test_a_build_that_goes_on(unfinished_build, tmp_path, name, damage):
    path = damage_copy(unfinished_build[0], tmp_path / "set", name, damage)
    with named_error(path):
        build(tmp_path / "set")
        assert builds.hashes(tmp_path / "set") == builds.hashes(unfinished_build[1])


@pytest.fixture(scope="module")
def cached_embeddings(clip, tmp_path_factory) -> tuple[Path, np.ndarray]:
    folder = tmp_path_factory.mktemp("cache")
    return folder, Embedder(clip, device="cpu", cache=EmbeddingCache(folder)).texts(tiny.captions()[:9]).vectors


@matrix("fingerprint.json", "vectors")
def test_a_cache_of_embeddings(clip, cached_embeddings, tmp_path, name, damage):
    (file,) = cached_embeddings[0].glob("*/*.safetensors" if name == "vectors" else f"*/{name}")
    damage_copy(cached_embeddings[0], tmp_path / "cache", str(file.relative_to(cached_embeddings[0])), damage)
    again = Embedder(clip, device="cpu", cache=EmbeddingCache(tmp_path / "cache")).texts(tiny.captions()[:9])
    assert (again.vectors == cached_embeddings[1]).all()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_of_image_hashes(tmp_path, damage):
    record = np.frombuffer(np.random.default_rng(0).bytes(RECORD.itemsize), RECORD)[0]
    store = HashStore(tmp_path)
    store.add(record)
    store.flush()
    (file,) = tmp_path.glob("*/*.safetensors")
    DAMAGES[damage](file)
    assert HashStore(tmp_path).get(record["key"].tobytes()) is None  # the image is hashed again
