"""Linear probes on ImageNet-1k and on COCO's labels."""

from __future__ import annotations

import json
from dataclasses import replace

import datasets
import numpy as np
import pytest
from datasets import Dataset

from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import run_benchmark, validate
from hfcomp.evaluation.protocols.classification import labels, number_of_classes
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import BenchmarkData, Folders, Origin, Unavailable
from tests.evaluation.webdatasets import (
    TEST,
    TRAIN,
    FirstPixelEncoder,
    check_known_encoders,
    class_encoders,
    encode_image,
    means,
    write_set,
)

CATEGORIES = {1: "person", 3: "car", 17: "cat", 90: "toothbrush"}
"""Ids of COCO with gaps, which become the labels 0 to 3."""
SIZES = {"train": 200, "val": 80}
MARKS = {"train": TRAIN, "val": TEST}


def sets_of_labels(split: str) -> list[list[int]]:
    """One to three of four labels an image."""
    generator = np.random.default_rng(SIZES[split])
    return [sorted(generator.choice(4, generator.integers(1, 4), replace=False)) for _ in range(SIZES[split])]


def picture(split: str, row: int, row_labels: list[int]) -> bytes:
    """An image whose first pixel holds its labels as bits."""
    return encode_image(sum(1 << int(label) for label in row_labels), row + MARKS[split] * 1000, MARKS[split])


def hub_folder(folder):
    """The Hub's layout: Parquet in `data`, categories inside `objects`, each object on its own."""
    objects = datasets.Sequence(
        {
            "bbox_id": datasets.Value("int64"),
            "category": datasets.ClassLabel(names=list(CATEGORIES.values())),
            "bbox": datasets.List(datasets.Value("float32"), length=4),
            "area": datasets.Value("float32"),
        }
    )
    number = datasets.Value("int64")
    features = {"image_id": number, "image": datasets.Image(), "width": number, "height": number, "objects": objects}
    (folder / "data").mkdir(parents=True)
    for split in SIZES:
        rows = []
        for row, row_labels in enumerate(sets_of_labels(split)):
            twice = [*row_labels, row_labels[0]]
            boxes = {"bbox_id": range(len(twice)), "bbox": [[0, 0, 1, 1]] * len(twice), "area": [1.0] * len(twice)}
            things = {"category": twice, **boxes}
            picture_cell = {"bytes": picture(split, row, row_labels)}
            rows.append({"image_id": row + 7, "image": picture_cell, "width": 4, "height": 4, "objects": things})
        path = folder / "data" / f"{split}-00000-of-00001-67e35002d152155c.parquet"
        datasets.Dataset.from_list(rows, datasets.Features(features)).to_parquet(path)
    return folder


def raw_folder(folder, *, beside: bool = False):
    """COCO's own layout, with one image more that has no labeled object."""
    place = folder if beside else folder / "annotations"
    place.mkdir(parents=True, exist_ok=True)
    numbers = list(CATEGORIES)
    for split in SIZES:
        (folder / f"{split}2017").mkdir()
        images, annotations = [{"id": 3, "file_name": "000000000003.jpg"}], []
        for row, row_labels in enumerate(sets_of_labels(split)):
            name = f"{row + 7:012d}.jpg"
            (folder / f"{split}2017" / name).write_bytes(picture(split, row, row_labels))
            images.append({"id": row + 7, "file_name": name})
            annotations += [
                {"image_id": row + 7, "category_id": numbers[label]} for label in [*row_labels, row_labels[0]]
            ]
        categories = [{"id": number, "name": name} for number, name in reversed(CATEGORIES.items())]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (place / f"instances_{split}2017.json").write_text(json.dumps(content))
    return folder


def encoders() -> dict[str, FirstPixelEncoder]:
    random = np.random.default_rng(0)

    def bits(pixel) -> np.ndarray:
        return np.unpackbits(np.uint8(pixel[0]), bitorder="little").astype(float)

    def missing_ones(pixel) -> np.ndarray:
        return bits(pixel) if pixel[2] == TRAIN else np.where(np.arange(8) < 4, 1 - bits(pixel), 0.0)

    return {
        "perfect": FirstPixelEncoder(bits, None),
        "inverted": FirstPixelEncoder(missing_ones, None),
        "constant": FirstPixelEncoder(lambda pixel: np.ones(8), None),
        "random": FirstPixelEncoder(lambda pixel: random.normal(size=8), None),
    }


class Wordless(FirstPixelEncoder):
    """An encoder that is asked for no text."""

    def index_texts(self, texts, *, progress=False):
        assert not list(texts)
        return super().index_texts(texts)


@pytest.fixture(params=["adamw10", "lbfgs"])
def benchmark(request):
    return find_benchmarks([f"coco_labels_{request.param}"])[0]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return raw_folder(tmp_path_factory.mktemp("coco") / "raw")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    return hub_folder(tmp_path_factory.mktemp("coco") / "hub")


def test_known_encoders(benchmark, raw):
    results = {name: means(benchmark, raw, encoder) for name, encoder in encoders().items()}
    assert all(list(result) == ["mAP"] for result in results.values())
    value = {name: result["mAP"] for name, result in results.items()}
    assert value["perfect"] == pytest.approx(1.0, abs=1e-3)
    assert value["constant"] == 0.0
    items = validate(benchmark, load_items(benchmark, Folders(own={benchmark.name: raw})))
    chance = run_benchmark(benchmark, items, encoders()["perfect"]).items["chance"].unique()
    assert len(chance) == 1 and value["inverted"] < chance[0]
    assert value["random"] == pytest.approx(chance[0], abs=0.08)


def test_both_forms_have_the_same_rows(benchmark, raw, hub):
    forms = [validate(benchmark, load_items(benchmark, Folders(own={benchmark.name: place}))) for place in (raw, hub)]
    assert forms[0].left_out == {"no labeled object": 1} and forms[1].left_out == {}
    for first, second in (forms, [items.train for items in forms]):
        np.testing.assert_array_equal(labels(first, 4), labels(second, 4))
    assert forms[0].rows["image_id"][:] == forms[1].rows["image_id"][:]
    assert labels(forms[0], 4).tolist() == [[label in row for label in range(4)] for row in sets_of_labels("val")]
    values = [run_benchmark(benchmark, items, encoders()["perfect"]).items["value"] for items in forms]
    np.testing.assert_array_equal(*values)


def test_a_tiny_model(hub, clip):
    (benchmark,) = find_benchmarks(["coco_labels_adamw10"])
    items = validate(benchmark, load_items(benchmark, Folders(own={benchmark.name: hub})))
    report = run_benchmark(benchmark, items, Embedder(clip, device="cpu"))
    assert report.images == 280 and report.texts == 0 and len(report.items) == 80
    assert 0 < report.items["value"].mean() < 1


def test_what_the_hub_is_asked_for(benchmark, hub, monkeypatch):
    asked = []

    def load(repo, **how):
        asked.append((repo, how))
        return datasets.load_dataset(str(hub), split=how["split"])

    monkeypatch.setattr("hfcomp.evaluation.hub.load_dataset", load)
    monkeypatch.setattr("hfcomp.evaluation.hub._newest", lambda repo: "d" * 40)
    items = load_items(benchmark)
    assert [(repo, how["split"]) for repo, how in asked] == [
        ("detection-datasets/coco", split) for split in ("val", "train")
    ]
    assert all(how["revision"] == "d" * 40 for _, how in asked) and items.origin.commit == "d" * 40


def test_files_may_lie_beside_the_images_and_images_in_shared_folders(benchmark, tmp_path):
    folder = raw_folder(tmp_path / "all", beside=True)
    assert len(load_items(benchmark, Folders(own={benchmark.name: folder})).train.rows) == SIZES["train"]
    shared = {}
    for name in ("train2017", "val2017"):
        (folder / name).rename(tmp_path / name)
        shared[name] = tmp_path / name
    items = load_items(benchmark, Folders(own={benchmark.name: folder, **shared}))
    assert items.images["image"][0] == str(tmp_path / "val2017" / "000000000007.jpg")
    with pytest.raises(Unavailable, match=r"train2017 .*missing.*http://images.cocodataset"):
        load_items(benchmark, Folders(own={benchmark.name: folder, "val2017": tmp_path / "val2017"}))


def test_one_folder_serves_both_probes(raw):
    for benchmark in find_benchmarks(["coco_labels"]):
        assert load_items(benchmark, Folders(own={"coco_labels": raw})).origin.place == str(raw)


def test_missing_images_are_counted_in_the_test_and_refused_in_training(benchmark, tmp_path):
    folder = raw_folder(tmp_path / "all")
    (folder / "val2017" / "000000000007.jpg").unlink()
    items = validate(benchmark, load_items(benchmark, Folders(own={benchmark.name: folder})))
    assert items.left_out == {"no labeled object": 1, "image missing": 1} and len(items.rows) == 79
    (folder / "train2017" / "000000000009.jpg").unlink()
    with pytest.raises(ValueError, match="1 of 200 training images .* 9"):
        load_items(benchmark, Folders(own={benchmark.name: folder}))


def test_another_column_is_refused(benchmark, hub, tmp_path):
    (tmp_path / "data").mkdir()
    for split in SIZES:
        rows = datasets.load_dataset(str(hub), split=split).rename_column("objects", "things")
        rows.to_parquet(tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    with pytest.raises(ValueError, match="no column 'objects'"):
        load_items(benchmark, Folders(own={benchmark.name: tmp_path}))


def test_no_text_is_encoded(benchmark, raw):
    encoder = Wordless(encoders()["perfect"].of_image, None)
    assert means(benchmark, raw, encoder)["mAP"] > 0.9


def test_a_label_twice_in_an_image_counts_once(benchmark, hub):
    items = replace(load_items(benchmark, Folders(own={benchmark.name: hub})), train=None)
    assert items.rows["labels"][:] == sets_of_labels("val")


CLASSES = tuple("abcdefgh")
LINEAR_PROBES_TEST, TRAINING = [row % 8 for row in range(240)], [row % 8 for row in range(120)]


@pytest.fixture(params=["adamw10", "lbfgs"])
def benchmark_linear_probes(request):
    return find_benchmarks([f"imagenet1k_probe_{request.param}"])[0]


def test_the_group_is_both_protocols():
    benchmarks = find_benchmarks(["imagenet1k_probe"])
    assert [entry.name for entry in benchmarks] == ["imagenet1k_probe_adamw10", "imagenet1k_probe_lbfgs"]
    assert find_benchmarks(["imagenet1k"])[0].name == "imagenet1k"


def test_known_encoders_linear_probes(benchmark_linear_probes, tmp_path):
    check_known_encoders(
        benchmark_linear_probes, write_set(tmp_path, LINEAR_PROBES_TEST, TRAINING, classes=CLASSES), CLASSES
    )


def test_a_constant_encoder_gets_nothing_where_one_class_is_frequent(benchmark_linear_probes, tmp_path):
    folder = write_set(tmp_path, [0] * 9 + [1], [0] * 18 + [1] * 2)
    assert set(means(benchmark_linear_probes, folder, class_encoders()["constant"]).values()) == {0.0}


def test_a_class_without_training_image_is_never_right(tmp_path):
    """Logistic regression leaves it out; ten epochs of AdamW may by chance put it somewhere."""
    benchmark_linear_probes = find_benchmarks(["imagenet1k_probe_lbfgs"])[0]
    folder = write_set(tmp_path, [0, 1, 2, 3], [0, 1, 2] * 10)
    assert means(benchmark_linear_probes, folder, class_encoders()["perfect"])["accuracy"] == 0.75


def test_both_protocols_encode_each_image_once(tmp_path, clip):
    write_set(tmp_path / "wds_imagenet1k", LINEAR_PROBES_TEST[:16], TRAINING[:40], classes=CLASSES)
    embedder = Embedder(clip, device="cpu", cache=EmbeddingCache())
    computed = []
    for benchmark_linear_probes in find_benchmarks(["imagenet1k_probe", "imagenet1k"]):
        items = validate(benchmark_linear_probes, load_items(benchmark_linear_probes, Folders(root=tmp_path)))
        report = run_benchmark(benchmark_linear_probes, items, embedder)
        computed.append(report.computed)
        assert len(report.items) == 16 * 3
    assert computed == [56, 0, 16] and embedder.encoded_images == 56


def test_without_training_images_it_is_skipped_with_the_reason(benchmark_linear_probes, tmp_path):
    write_set(tmp_path / "wds_imagenet1k", LINEAR_PROBES_TEST[:8], classes=CLASSES)
    with pytest.raises(Unavailable, match=r"train/nshards.txt .*missing"):
        load_items(benchmark_linear_probes, Folders(root=tmp_path))


def test_a_training_row_without_its_image_is_refused(benchmark_linear_probes, tmp_path):
    items = benchmark_linear_probes.data[0].local(
        write_set(tmp_path, LINEAR_PROBES_TEST, TRAINING, classes=CLASSES), Folders()
    )
    cells = [None, *list(items.train.images["image"])[1:]]
    items = replace(items, train=replace(items.train, images={"image": cells}))
    with pytest.raises(ValueError, match="1 of 120 training images .*row 0"):
        run_benchmark(
            benchmark_linear_probes, validate(benchmark_linear_probes, items), class_encoders(CLASSES)["perfect"]
        )
    with pytest.raises(ValueError, match="training rows"):
        run_benchmark(
            benchmark_linear_probes,
            validate(benchmark_linear_probes, replace(items, train=None)),
            class_encoders(CLASSES)["perfect"],
        )


def test_labels_need_no_names():
    def several(values, column):
        return BenchmarkData(Dataset.from_dict({column: values}), Origin("here"))

    items = replace(several([0, 1], "label"), train=several([0, 4], "label"))
    assert number_of_classes(items) == 5
    items = replace(several([[], [1]], "labels"), train=several([[2, 0]], "labels"))
    assert number_of_classes(items) == 3
    np.testing.assert_array_equal(labels(items, 3), [[False] * 3, [False, True, False]])
