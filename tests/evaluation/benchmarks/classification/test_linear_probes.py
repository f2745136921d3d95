"""ImageNet's linear probes end to end, on a small set in the repository's layout."""

from __future__ import annotations

from dataclasses import replace

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
from tests.evaluation.webdatasets import check_known_encoders, class_encoders, means, write_set

CLASSES = tuple("abcdefgh")
TEST, TRAINING = [row % 8 for row in range(240)], [row % 8 for row in range(120)]


@pytest.fixture(params=["adamw10", "lbfgs"])
def benchmark(request):
    return find_benchmarks([f"imagenet1k_probe_{request.param}"])[0]


def test_the_group_is_both_protocols():
    found = find_benchmarks(["imagenet1k_probe"])
    assert [one.name for one in found] == ["imagenet1k_probe_adamw10", "imagenet1k_probe_lbfgs"]
    assert find_benchmarks(["imagenet1k"])[0].name == "imagenet1k"


def test_known_encoders(benchmark, tmp_path):
    check_known_encoders(benchmark, write_set(tmp_path, TEST, TRAINING, classes=CLASSES), CLASSES)


def test_a_constant_encoder_gets_nothing_where_one_class_is_frequent(benchmark, tmp_path):
    folder = write_set(tmp_path, [0] * 9 + [1], [0] * 18 + [1] * 2)
    assert set(means(benchmark, folder, class_encoders()["constant"]).values()) == {0.0}


def test_a_class_without_training_image_is_never_right(tmp_path):
    """Logistic regression leaves it out; ten epochs of AdamW may by chance put it somewhere."""
    benchmark = find_benchmarks(["imagenet1k_probe_lbfgs"])[0]
    folder = write_set(tmp_path, [0, 1, 2, 3], [0, 1, 2] * 10)
    assert means(benchmark, folder, class_encoders()["perfect"])["accuracy"] == 0.75


def test_both_protocols_encode_each_image_once(tmp_path, clip):
    write_set(tmp_path / "wds_imagenet1k", TEST[:16], TRAINING[:40], classes=CLASSES)
    embedder = Embedder(clip, device="cpu", cache=EmbeddingCache())
    computed = []
    for benchmark in find_benchmarks(["imagenet1k_probe", "imagenet1k"]):
        items = validate(benchmark, load_items(benchmark, Folders(root=tmp_path)))
        report = run_benchmark(benchmark, items, embedder)
        computed.append(report.computed)
        assert len(report.items) == 16 * 3
    assert computed == [56, 0, 16] and embedder.encoded_images == 56


def test_without_training_images_it_is_skipped_with_the_reason(benchmark, tmp_path):
    write_set(tmp_path / "wds_imagenet1k", TEST[:8], classes=CLASSES)
    with pytest.raises(Unavailable, match=r"has no training images \(train/nshards.txt is missing\)"):
        load_items(benchmark, Folders(root=tmp_path))


def test_a_training_row_without_its_image_is_refused(benchmark, tmp_path):
    items = benchmark.data[0].local(write_set(tmp_path, TEST, TRAINING, classes=CLASSES), Folders())
    cells = [None, *list(items.train.images["image"])[1:]]
    items = replace(items, train=replace(items.train, images={"image": cells}))
    with pytest.raises(ValueError, match="1 of 120 training images are missing, the first in row 0"):
        run_benchmark(benchmark, validate(benchmark, items), class_encoders(CLASSES)["perfect"])
    with pytest.raises(ValueError, match="a probe needs training rows"):
        run_benchmark(benchmark, validate(benchmark, replace(items, train=None)), class_encoders(CLASSES)["perfect"])


def test_labels_need_no_names():
    def several(values, column):
        return BenchmarkData(Dataset.from_dict({column: values}), Origin("here"))

    items = replace(several([0, 1], "label"), train=several([0, 4], "label"))
    assert number_of_classes(items) == 5
    items = replace(several([[], [1]], "labels"), train=several([[2, 0]], "labels"))
    assert number_of_classes(items) == 3
    np.testing.assert_array_equal(labels(items, 3), [[False] * 3, [False, True, False]])
