"""VTAB's tasks: which data, which labels, and the 1,000 images of VTAB-1k."""

from __future__ import annotations

import datasets
import numpy as np
import pandas as pd
import pytest

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.classification.linear_probes import GROUPS, HELD_OUT, VTAB, VTAB_1K
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import run_benchmark, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Folders, Unavailable
from hfcomp.statistics import missing_averages, summarize
from tests.evaluation.webdatasets import TRAIN, class_encoders, encode_image, means, write_set

TEST, TRAINING = [row % 4 for row in range(120)], [row % 4 for row in range(60)]


def find_benchmark(name):
    (benchmark,) = find_benchmarks([name])
    return benchmark


def test_there_are_19_tasks_in_three_groups_and_one_name_for_all():
    assert {name: len(tasks) for name, tasks in GROUPS.items()} == {"natural": 7, "specialized": 4, "structured": 8}
    assert len(VTAB) == len(VTAB_1K) == 19
    assert {benchmark.name for benchmark in find_benchmarks(["vtab"])} == {benchmark.name for benchmark in VTAB}
    assert {benchmark.name for benchmark in find_benchmarks(["vtab1k"])} == {benchmark.name for benchmark in VTAB_1K}


def test_known_encoders(tmp_path):
    folder = write_set(tmp_path, TEST, TRAINING)
    results = {name: means(find_benchmark("vtab_dtd"), folder, encoder) for name, encoder in class_encoders().items()}
    assert results["perfect"] == {"accuracy": 1.0, "mean per class": 1.0}
    assert set(results["inverted"].values()) == set(results["constant"].values()) == {0.0}
    assert results["random"]["accuracy"] == pytest.approx(1 / 4, abs=0.1)


def test_a_tiny_model(tmp_path, clip):
    write_set(tmp_path / "wds_vtab-svhn", TEST[:12], TRAINING)
    benchmark = find_benchmark("vtab_svhn")
    items = validate(benchmark, load_items(benchmark, Folders(root=tmp_path)))
    report = run_benchmark(benchmark, items, Embedder(clip, device="cpu"))
    assert report.images == 72 and set(report.items["metric"]) == {"accuracy", "mean per class"}


@pytest.mark.parametrize(("task", "labels"), [("dsprites_location", 32), ("dsprites_orientation", 40)])
def test_dsprites_has_16_classes_as_in_vtab(tmp_path, task, labels):
    benchmark = find_benchmark(f"vtab_{task}")
    names = [str(number) for number in range(labels)]
    folder = write_set(tmp_path, range(labels), range(labels), classes=names)
    items = load_items(benchmark, Folders(own={benchmark.name: folder}))
    expected = [int(label // (labels / 16)) for label in range(labels)]
    assert items.rows["label"][:] == items.train.rows["label"][:] == expected
    assert max(expected) == 15


def test_1000_training_images_of_which_200_are_held_out(tmp_path):
    training = [row % 4 for row in range(1040)]
    folder = write_set(tmp_path, TEST[:40], training)
    benchmark = find_benchmark("vtab1k_dtd")
    items = load_items(benchmark, Folders(own={benchmark.name: folder}))
    assert len(items.train.rows) == len(items.train.images["image"]) == len(HELD_OUT) == 1000
    assert HELD_OUT.sum() == 200
    contents = {encode_image(label, row + TRAIN * 1000, TRAIN): label for row, label in enumerate(training)}
    pairs = zip(items.train.images["image"], items.train.rows["label"], strict=True)
    assert all(contents.pop(cell["bytes"]) == label for cell, label in pairs)
    again = load_items(benchmark, Folders(own={benchmark.name: folder}))
    assert again.train.rows["label"][:] == items.train.rows["label"][:]
    assert means(benchmark, folder, class_encoders()["perfect"])["accuracy"] == 1.0
    assert set(means(benchmark, folder, class_encoders()["constant"]).values()) == {0.0}


def test_another_folder_is_refused_for_1k_too(tmp_path):
    with pytest.raises(ValueError, match="not contain .*clip-benchmark/wds_vtab-dtd"):
        load_items(find_benchmark("vtab1k_dtd"), Folders(own={"vtab1k_dtd": tmp_path}))


@pytest.mark.parametrize("name", ["vtab_pcam", "vtab1k_pcam"])
def test_a_repository_without_training_images_is_skipped(tmp_path, monkeypatch, name):
    folder = write_set(tmp_path / ("a" * 40), TEST[:8])
    asked = []
    monkeypatch.setattr(hub, "snapshot_download", lambda repo, **how: asked.append(how) or str(folder))
    with pytest.raises(Unavailable, match="clip-benchmark/wds_vtab-pcam .*no training"):
        load_items(find_benchmark(name))
    assert asked[0]["revision"] == "502695fe1a141108650e3c5b91c8b5e0ff84ed49"


def test_sun397_is_read_from_parquet(tmp_path, monkeypatch):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list("abcd"))})
    for split, labels, mark in (("train", TRAINING, TRAIN), ("test", TEST, 0)):
        rows = [{"image": {"bytes": encode_image(at, n, mark)}, "label": at} for n, at in enumerate(labels)]
        (tmp_path / "data").mkdir(exist_ok=True)
        datasets.Dataset.from_list(rows, features).to_parquet(tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    benchmark, asked = find_benchmark("vtab_sun397"), []
    assert means(benchmark, tmp_path, class_encoders()["perfect"])["accuracy"] == 1.0
    for name in ("vtab_sun397", "vtab1k_sun397"):  # not the folder of zero-shot classification, which is another set
        assert find_benchmark(name).folder == "vtab_sun397"

    def load(repo, **how):
        asked.append((repo, how))
        return datasets.load_dataset(str(tmp_path), split=how["split"])

    monkeypatch.setattr(hub, "load_dataset", load)
    items = load_items(benchmark)
    revision = "7e6af6a2499ad708618be868e1471eac0aca1168"
    assert [how for _, how in asked] == [{"split": split, "revision": revision} for split in ("test", "train")]
    assert items.origin.place == "dpdl-benchmark/sun397" and items.origin.commit == revision
    np.testing.assert_array_equal(items.train.rows["label"], TRAINING)


def test_the_tasks_are_subsets_of_one_benchmark_with_its_means(tmp_path):
    write_set(tmp_path / "wds_vtab-svhn", TEST, TRAINING)
    write_set(tmp_path / "wds_vtab-dtd", TEST[:40], TRAINING)
    tables = []
    for name, encoder in (("vtab_svhn", "perfect"), ("vtab_dtd", "inverted")):
        items = validate(find_benchmark(name), load_items(find_benchmark(name), Folders(root=tmp_path)))
        tables.append(run_benchmark(find_benchmark(name), items, class_encoders()[encoder]).items)
    table = pd.concat(tables).assign(arm="model")
    assert set(table["benchmark"]) == {"VTAB"} and set(table["subset"]) == {"svhn", "dtd"}
    assert not set(tables[0]["image_id"]) & set(tables[1]["image_id"])
    others = [task for group in GROUPS.values() for task in group if task not in ("svhn", "dtd")]
    whole = pd.concat([table, *(tables[0].assign(arm="model", subset=task) for task in others)])
    averages = {"VTAB": find_benchmark("vtab_dtd").averages}
    lines = summarize(whole, models=["model"], references=[], averages=averages)
    values = {line["subset"]: line["models"]["model"]["value"] for line in lines if line["metric"] == "accuracy"}
    assert values["mean of 19 tasks"] == pytest.approx(18 / 19)  # each task counts the same, whatever its items
    assert values["mean of 7 natural tasks"] == pytest.approx(6 / 7)
    assert values["mean of 8 structured tasks"] == 1
    assert {entry["average"] for entry in missing_averages(table, averages)} == {
        benchmark.name for benchmark in averages["VTAB"]
    }
