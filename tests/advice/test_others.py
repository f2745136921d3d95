"""What the rest advises: output files, keyword tables, ratings, statistics, overlap, searches."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
import yaml

from hfcomp import cli
from hfcomp.data.loading import load_training_set
from hfcomp.data.overlap import ScoredImages, find_overlap
from hfcomp.data.overlap.policy import OverlapRecord, apply_policy
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.spec import COMPOSITIONAL, GENERAL
from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.experiments.studies.search import _open_store
from hfcomp.experiments.studies.search_report import read_trials
from hfcomp.factory.magic.encoders import SentenceEncoder
from hfcomp.metrics.retrieval import recall_at_k
from hfcomp.negatives.concreteness import ConcretenessRatings, download_ratings
from hfcomp.negatives.keywords import read_keyword_table
from hfcomp.negatives.neighbors import nearest_neighbors
from hfcomp.statistics.bootstrap import ImageBootstrap
from hfcomp.statistics.significance import macro_sign_flip_test
from hfcomp.testing import write_tiny_sdxl
from hfcomp.trainers.cement import CementTrainer
from tests import tiny
from tests.data.photographs import encode, resize, texture
from tests.evaluation.evaluations import benchmark_facts, crepe, store_folder
from tests.factory.concretebatch import sets as pair_sets
from tests.factory.magic import sets

TABLES, WRITING = "hfcomp/negatives/keywords/tables.py", "hfcomp/writing.py"
POLICY, RECORD = "hfcomp/data/overlap/policy.py", "hfcomp/data/overlap/policy.py"
follows = pytest.mark.follows


@follows(WRITING, "is a folder, expected a file. Pass another --{option}.")
@follows(WRITING, "already exists. Pass --overwrite, or another --{option}.")
@follows(WRITING, "is a file, expected a folder. Pass another --{option}.")
@follows(WRITING, "which would be deleted. Pass another")
@follows(WRITING, "already contains {ours[0]}. Pass --overwrite, or another --{option}.")
def test_outputs(advice, clip, pairs_file, tmp_path):
    page = tmp_path / "page.html"
    words = ["gallery", str(pairs_file), "--output"]
    page.mkdir()
    (page / "gallery.html").mkdir()
    advice.command(*words, str(page))
    cli.main([*words, str(tmp_path / "a.html")])
    advice.command(*words, str(tmp_path / "a.html"))
    cli.main([*words, str(tmp_path / "a.html"), "--overwrite"])
    cli.main([*words, str(tmp_path / "b.html")])
    folders = [str(store_folder(tmp_path / name, crepe(name, 0.5), benchmarks=benchmark_facts())) for name in "ab"]
    words = ["compare", *folders, "--no_page", "--output_dir"]
    advice.command(*words, str(tmp_path / "a.html"))
    cli.main([*words, str(tmp_path / "out")])
    advice.command(*words, str(tmp_path / "out"))
    cli.main([*words, str(tmp_path / "out"), "--overwrite"])
    words = ["merge", str(clip), str(tiny.clip(tmp_path / "tuned", seed=1)), "--alpha", "0.5", "--output_dir"]
    advice.command(*words, str(tmp_path / "out"))
    cli.main([*words, str(tmp_path / "merged")])


@follows(TABLES, "has no words. Add one of any_other, pairs, one_way.")
@follows(TABLES, "a concept lists each keyword once. Remove one of them.")
def test_keyword_tables(advice, tmp_path):
    def read(words: object):
        (tmp_path / "words.yaml").write_text(yaml.safe_dump({"color": words}))
        return read_keyword_table(str(tmp_path / "words.yaml"))

    advice.of(read, {"kind": "keyword_color"})
    for words in ({"any_other": ["red", "blue"]}, {"pairs": [["red", "blue"]]}, {"one_way": [["red", "blue"]]}):
        read(words)
    advice.of(read, {"any_other": ["red", "blue"], "pairs": [["red", "green"]]})
    read({"any_other": ["red", "blue"]})


@follows("hfcomp/negatives/neighbors.py", 'Or omit method, or use "exact".')
@follows("hfcomp/metrics/retrieval.py", "pass positive=[Q, M] if the numbers differ.")
def test_calls(advice, monkeypatch):
    vectors = np.eye(4, dtype=np.float32)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "faiss", None)
        advice.of(nearest_neighbors, vectors, number=1, method="faiss")
        nearest_neighbors(vectors, number=1)
        nearest_neighbors(vectors, number=1, method="exact")
    advice.of(recall_at_k, vectors[:2], vectors)
    recall_at_k(vectors[:2], vectors, positive=np.eye(4, dtype=bool)[:2])


class Loading(Exception):
    """A sweep that would load its benchmarks now: its options have passed."""


@follows("hfcomp/merging/merge.py", "for example --benchmarks sugarcrepe,coco2017_retrieval.")
def test_merge(advice, clip, tmp_path, monkeypatch):
    words = ["merge", str(clip), str(tiny.clip(tmp_path / "tuned", seed=1)), "--sweep", "--device", "cpu"]
    words += ["--output_dir", str(tmp_path / "out")]
    message = advice.command(*words)
    option, names = message.rstrip(".").split()[-2:]
    loaded = []

    def load(options):  # whose data is not here
        loaded.extend(find_benchmarks(options.benchmarks))
        raise Loading

    monkeypatch.setattr("hfcomp.merging.merge._load", load)
    with pytest.raises(Loading):
        cli.main([*words, option, names])
    assert {benchmark.suite for benchmark in loaded} == {COMPOSITIONAL, GENERAL}


@follows(
    "hfcomp/data/overlap/guard.py",
    "Exclude such rows with --overlap exclude (the default), train on them with --overlap",
)
@follows(POLICY, ", or pass --overlap allow{split} to score training rows on purpose.")
@follows(POLICY, "Choose another dataset, dataset_filter or evaluation, or pass --overlap allow to score training")
@follows("hfcomp/data/sources.py", "Choose one with --split: {known}.")
def test_overlap(advice, train_begins, splits, tmp_path):
    rows = datasets.load_from_disk(splits)
    some = datasets.concatenate_datasets([rows["train"], rows["test"].select(range(4))])
    for name, train in (("some", some), ("all", rows["test"]), ("none", rows["train"])):
        datasets.DatasetDict({"train": train, "test": rows["test"]}).save_to_disk(tmp_path / name)
    words = ["slipform", "--batch_size", "4", "--use_cpu", "true", "--evaluation", "own", "--dataset"]
    advice.command("train", *words, str(tmp_path / "some"), "--overlap", "refuse")
    train_begins(*words, tmp_path / "some", "--overlap", "exclude")
    train_begins(*words, tmp_path / "some", "--overlap", "allow")
    train_begins(*words, tmp_path / "none", "--overlap", "refuse")
    advice.command("train", *words, str(tmp_path / "all"))
    train_begins(*words, tmp_path / "all", "--overlap", "allow")
    train_begins(*words, tmp_path / "none")
    rows["train"].to_parquet(tmp_path / "one.parquet")
    arguments = [*words, str(tmp_path / "one.parquet")]
    message = advice.command("train", *arguments)
    advised = message.partition("(--dataset_split")[2].partition(")")[0].replace("'", "").split()
    train_begins(*arguments, "--dataset_split", *advised)
    train_begins(*arguments, "--evaluation_dataset", splits)
    advised = message.rpartition(" --overlap ")[2].partition(" to score")[0].split()
    train_begins(*arguments, "--overlap", *advised)
    advice.command("gallery", str(splits), "--split", "validation", "--output", str(tmp_path / "page.html"))
    cli.main(["gallery", str(splits), "--split", "test", "--output", str(tmp_path / "page.html")])
    with pytest.raises(SystemExit, match="--dataset_split, --evaluation_split"):
        cli.main(["train", *words, str(splits), "--dataset_split", "validation"])
    train_begins(*words, splits, "--dataset_split", "train", "--evaluation_split", "test")


@follows(RECORD, "Restore it from a backup, or start a new run with another --output_dir")
@follows(RECORD, "Use the previous evaluation, or another --output_dir.")
def test_records(advice, tmp_path):
    def record(rows: list[int]) -> OverlapRecord:
        return OverlapRecord(
            {"key": {"policy": "exclude", "rows": rows, "left_out_rows": len(rows), "note": f"{len(rows)} rows"}}
        )

    record([1]).check_and_write(tmp_path)
    whole = (tmp_path / "overlap.json").read_text()
    advice.of(record([1, 2]).check_and_write, tmp_path)
    record([1]).check_and_write(tmp_path)
    (tmp_path / "overlap.json").write_text("damaged")
    advice.of(record([1]).check_and_write, tmp_path)
    (tmp_path / "another").mkdir()
    record([1]).check_and_write(tmp_path / "another")
    (tmp_path / "overlap.json").write_text(whole)
    record([1]).check_and_write(tmp_path)


@follows(
    "hfcomp/data/tokenizing.py",
    "Set model.config.text_config.eos_token_id = {tokenizer.eos_token_id} (not 2) and load the",
)
def test_end_of_text(advice, old_clip):
    from transformers import AutoProcessor

    tokenizer = AutoProcessor.from_pretrained(old_clip).tokenizer
    settings = {"model_type": "clip", "max_length": 24}
    TextTokenizer(tokenizer, eos_token_id=2, **settings)
    tokenizer.add_tokens(["<mine>"])
    message = advice.of(TextTokenizer, tokenizer, eos_token_id=2, **settings)
    number = int(message.partition("eos_token_id = ")[2].split()[0])
    TextTokenizer(tokenizer, eos_token_id=number, **settings)


@follows(
    "hfcomp/experiments/dry_run.py", "Set mini_batch_size, which gives the same loss and gradient with less memory."
)
def test_a_batch_that_does_not_fit(advice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "slipform",
        "--dataset_rows",
        "48",
        "--batch_size",
        "16",
        "--evaluation_items",
        "2",
        "--max_steps",
        "2",
    ]
    words += ["--controls", "none", "--use_cpu", "true", "--dry_run"]
    whole = CementTrainer.training_step

    def step(trainer, *arguments, **options):
        if trainer.args.mini_batch_size is None:
            raise torch.OutOfMemoryError("no memory")
        return whole(trainer, *arguments, **options)

    monkeypatch.setattr(CementTrainer, "training_step", step)
    advice.command(*words)
    cli.main([*words, "--mini_batch_size", "8"])


@follows("hfcomp/experiments/studies/search_report.py", "Remove it and start the search again: it resumes")
@follows("hfcomp/experiments/studies/search.py", "Restore it from a copy, or choose another --output_dir")
def test_damaged_searches(advice, tmp_path):
    pytest.importorskip("optuna")
    plan = {"maximize": "sandbox: *", "trials": 1, "ranges": {"learning_rate": {"low": 1e-4, "high": 1e-2}}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(plan))
    search = read_plan("slipform", ["--search", str(tmp_path / "mine.yaml"), "--use_cpu", "true"])
    session = SimpleNamespace(state=SimpleNamespace(print=print), log=print)

    def open_store(name: str) -> object:
        (tmp_path / name).mkdir(exist_ok=True)
        return _open_store(search, SimpleNamespace(folder=tmp_path / name, session=session))

    assert open_store("run")
    whole = (tmp_path / "run/search.db").read_bytes()
    (tmp_path / "run/search.db").write_bytes(b"damaged" * 999)
    advice.of(open_store, "run")
    assert open_store("another")
    (tmp_path / "run/search.db").write_bytes(whole)
    assert open_store("run")
    (tmp_path / "run/search.json").write_text("damaged")
    advice.of(read_trials, tmp_path / "run")
    (tmp_path / "run/search.json").unlink()
    assert open_store("run") and read_trials(tmp_path / "run") == []


@follows("hfcomp/statistics/bootstrap.py", "Pass bounds=None for unbounded values, difference=True for differences.")
@follows("hfcomp/statistics/significance.py", "expected at least one item in each. Remove it.")
def test_statistics(advice):
    images = [f"{number}" for number in range(8)]
    bootstrap = ImageBootstrap(images, resamples=400)
    values = np.linspace(-0.5, 1.5, 8)
    advice.of(bootstrap.interval, values, images)
    bootstrap.interval(values, images, bounds=None)
    bootstrap.interval(values - 0.5, images, difference=True)
    subset = (np.ones(8), images)
    advice.of(macro_sign_flip_test, [subset, (np.ones(0), [])])
    macro_sign_flip_test([subset])


@follows("hfcomp/negatives/concreteness.py", "was not kept. {HOW_TO_GET} Then pass the file")
@follows("hfcomp/negatives/concreteness.py", "could not be downloaded: {error}. {HOW_TO_GET} Then pass the file as")
@follows("hfcomp/factory/magic/encoders.py", "Or choose --encoder {BY_CAPTIONS}, which needs no model.")
def test_ratings_and_encoders(advice, tmp_path, monkeypatch):
    def download() -> object:
        return download_ratings(tmp_path, log=print, url="http://127.0.0.1:9/ratings.txt", timeout=2)

    advice.of(download)
    with monkeypatch.context() as patch:
        patch.setattr("hfcomp.negatives.concreteness._fetch", lambda *_: b"another file")
        advice.of(download)
    (tmp_path / "own.txt").write_text("Word\tConc.M\tDom_Pos\ndog\t4.85\tNoun\n")
    assert ConcretenessRatings.from_file(tmp_path / "own.txt")
    monkeypatch.setattr("hfcomp.factory.magic.encoders.find_spec", lambda name: None)
    advice.of(SentenceEncoder, "a/model")
    sets.source(tmp_path / "source")
    words = ["build", "magic", "--source", str(tmp_path / "source"), "--output", str(tmp_path / "magic")]
    words += ["--writer", "taxonomy", "--taxonomy", str(tmp_path / "taxonomy.yaml"), "--until", "hierarchy"]
    cli.main([*words, "--encoder", "captions"])


@follows("hfcomp/factory/concretebatch/chain.py", "{ONE_LICENSE} Choose another --output.")
@follows(
    "hfcomp/data/built_sets/views.py", "Re-run the `hfcomp build` command of the dataset, which rewrites the file"
)
@follows("hfcomp/data/built_sets/files.py", "command with --until {names.steps[-1]} or")
def test_steps_of_concretebatch(advice, clip, tmp_path):
    pipeline = write_tiny_sdxl(tmp_path / "sdxl", clip)
    source, ratings = pair_sets.photos(tmp_path / "photos"), pair_sets.ratings(tmp_path / "ratings.txt")
    words = ["build", "concretebatch", "--source", source, "--concreteness_ratings", ratings, "--parser", "rules"]
    words += ["--writer", "substitute", "--image_pipeline", pipeline, "--image_size", 32, "--image_batch_size", 2]
    words = [*map(str, words), "--limit", "2", "--configs", "high_concreteness", "--output"]
    cli.main([*words, str(tmp_path / "out"), "--until", "targets"])
    advice.of(load_training_set, str(tmp_path / "out"))
    cli.main([*words, str(tmp_path / "out"), "--until", "images"])
    load_training_set(str(tmp_path / "out"))
    (tmp_path / "out" / "steps" / ".chain.json").write_text("damaged")
    advice.of(load_training_set, str(tmp_path / "out"))
    cli.main([*words, str(tmp_path / "out"), "--until", "images"])
    load_training_set(str(tmp_path / "out"))
    other = [word.replace("high_concreteness", "random") for word in words]
    other[other.index("--limit") + 1] = "3"
    advice.command(*other, str(tmp_path / "out"), "--until", "targets")
    cli.main([*other, str(tmp_path / "other"), "--until", "targets"])


@follows(POLICY, "If they are not, use --overlap allow, which compares only by name and file")
def test_images_that_are_all_alike(advice, tmp_path):
    cells = [{"bytes": encode(texture(seed)), "path": None} for seed in range(24)]
    copies = [{"bytes": encode(resize(texture(seed), 90)), "path": None} for seed in range(24)]
    rows = datasets.Dataset.from_dict({"image": cells, "caption": ["a text"] * 24})
    rows = rows.cast_column("image", datasets.Image(decode=False))
    how = {"folder": tmp_path, "progress": False}
    scored = [ScoredImages("benchmark", copies)]
    overlap = find_overlap(rows, scored, **how)
    advice.read(apply_policy(rows, overlap, "exclude")[1])
    kept = rows.select([row for row in range(len(rows)) if row not in {*overlap.unsure.tolist()}])
    assert not len(find_overlap(kept, scored, **how).unsure)
    named = find_overlap(rows, scored, looks=False, **how)
    assert "INCLUDES them" not in apply_policy(rows, named, "allow")[1]
