"""What the rest advises: output files, keyword tables, ratings, statistics, overlap, searches."""

from __future__ import annotations

import sys

import datasets
import numpy as np
import pytest
import torch
import yaml

from hfcomp import cli
from hfcomp.data.overlap.record import OverlapRecord
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.metrics.retrieval import recall_at_k
from hfcomp.negatives.keywords import read_keyword_table
from hfcomp.negatives.neighbours import nearest_neighbours
from hfcomp.trainers.cement import CementTrainer
from tests import tiny
from tests.evaluation.evaluations import benchmark_facts, crepe, stored

TABLES, WRITING = "hfcomp/negatives/keywords/tables.py", "hfcomp/writing.py"
POLICY, RECORD = "hfcomp/data/overlap/policy.py", "hfcomp/data/overlap/record.py"
follows = pytest.mark.follows


@follows(WRITING, "is a folder, expected a file. Pass another --{option}.")
@follows(WRITING, "is there already. Pass --overwrite, or another --{option}.")
@follows(WRITING, "is a file, expected a folder. Pass another --{option}.")
@follows(WRITING, "which would be deleted: it has no {written[0]}. Pass another")
@follows(WRITING, "holds {ours[0]} already. Pass --overwrite, or another --{option}.")
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
    folders = [str(stored(tmp_path / name, crepe(name, 0.5), benchmarks=benchmark_facts())) for name in "ab"]
    words = ["compare", *folders, "--no_page", "--output_dir"]
    advice.command(*words, str(tmp_path / "a.html"))
    cli.main([*words, str(tmp_path / "out")])
    advice.command(*words, str(tmp_path / "out"))
    cli.main([*words, str(tmp_path / "out"), "--overwrite"])
    words = ["merge", str(clip), str(tiny.clip(tmp_path / "tuned", seed=1)), "--alpha", "0.5", "--output_dir"]
    advice.command(*words, str(tmp_path / "out"))
    cli.main([*words, str(tmp_path / "merged")])


@follows(TABLES, "has no words. Give it one of any_other, pairs, one_way.")
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


@follows("hfcomp/negatives/neighbours.py", 'Or omit method, or use "exact".')
@follows("hfcomp/metrics/retrieval.py", "pass positive=[Q, M] when they differ.")
def test_calls(advice, monkeypatch):
    vectors = np.eye(4, dtype=np.float32)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "faiss", None)
        advice.of(nearest_neighbours, vectors, number=1, method="faiss")
        nearest_neighbours(vectors, number=1)
        nearest_neighbours(vectors, number=1, method="exact")
    advice.of(recall_at_k, vectors[:2], vectors)
    recall_at_k(vectors[:2], vectors, positive=np.eye(4, dtype=bool)[:2])


@follows(
    "hfcomp/merging/merge.py",
    "name one benchmark of composition and one general: --benchmarks sugarcrepe,coco2017_retrieval.",
)
def test_merge(advice, clip, tmp_path, monkeypatch):
    words = ["merge", str(clip), str(tiny.clip(tmp_path / "tuned", seed=1)), "--sweep", "--device", "cpu"]
    words += ["--output_dir", str(tmp_path / "out")]
    found = advice.command(*words)
    option, names = found.rstrip(".").rpartition(": ")[2].split()
    monkeypatch.setattr("hfcomp.merging.merge._load", lambda options: pytest.skip(f"loads {options.benchmarks}"))
    with pytest.raises(pytest.skip.Exception, match="'sugarcrepe', 'coco2017_retrieval'"):
        cli.main([*words, option, names])


@follows(
    "hfcomp/data/overlap/guard.py",
    "Leave such rows out with --overlap exclude (the default), train on them with --overlap",
)
@follows(POLICY, "; {purpose} scores the rows of training on purpose.")
@follows(POLICY, "Choose another dataset, dataset_filter or evaluation, or pass --overlap allow to score on")
@follows("hfcomp/data/sources.py", "Choose one with --split.")
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
    one = [*words, str(tmp_path / "one.parquet")]
    found = advice.command("train", *one)
    advised = found.partition("(--dataset_split")[2].partition(")")[0].replace("'", "").split()
    train_begins(*one, "--dataset_split", *advised)
    train_begins(*one, "--evaluation_dataset", splits)
    advised = found.partition("; --overlap ")[2].partition(" scores")[0].split()
    train_begins(*one, "--overlap", *advised)
    advice.command("gallery", str(splits), "--split", "validation", "--output", str(tmp_path / "page.html"))
    cli.main(["gallery", str(splits), "--split", "test", "--output", str(tmp_path / "page.html")])
    with pytest.raises(SystemExit, match="Choose one with --dataset_split, --evaluation_split"):
        cli.main(["train", *words, str(splits), "--dataset_split", "validation"])
    train_begins(*words, splits, "--dataset_split", "train", "--evaluation_split", "test")


@follows(RECORD, "Put it back from a copy, or train anew with another --output_dir: which rows it left out is not")
@follows(RECORD, "Use the evaluation of before, or another --output_dir.")
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
    found = advice.of(TextTokenizer, tokenizer, eos_token_id=2, **settings)
    number = int(found.partition("eos_token_id = ")[2].split()[0])
    TextTokenizer(tokenizer, eos_token_id=number, **settings)


@follows("hfcomp/experiments/dry_run.py", "Set mini_batch_size: the same loss and gradient in less memory.")
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
