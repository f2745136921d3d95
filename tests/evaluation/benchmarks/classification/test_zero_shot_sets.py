"""Zero-shot sets end to end, from the repositories' layout to the metrics."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModel, AutoProcessor

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks import benchmarks, find_benchmarks
from hfcomp.evaluation.benchmarks.classification.zero_shot_sets import ZERO_SHOT
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import run_benchmark, validate
from hfcomp.evaluation.protocols.classification import ZeroShot
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import GENERAL
from tests.evaluation.webdatasets import CLASS_NAMES, check_known_encoders, class_encoders, means, write_set

VTAB_COPIES = ["cifar10", "cifar100", "dtd", "pets", "caltech101", "flowers"]
NAMES = ["imagenet1k", "food101", "sun397", "cars", "fgvc_aircraft", *VTAB_COPIES]
COLORS = ("red", "blue", "green", "white", "black", "grey", "pink", "teal")
UNEVEN = [0] * 6 + [1] * 2 + [2, 3]


def test_every_set_is_known_and_reads_its_own_repository():
    assert {one.name for one in ZERO_SHOT} == set(NAMES)
    assert all(benchmarks()[name].suite == GENERAL and benchmarks()[name].protocol == ZeroShot() for name in NAMES)
    for one in ZERO_SHOT:
        repo = f"vtab-{one.name}" if one.name in VTAB_COPIES else one.name
        assert one.data[0].repo == f"clip-benchmark/wds_{repo}"
    assert not any(one.data[0].train for one in ZERO_SHOT)


@pytest.fixture(params=["food101", "pets"])
def benchmark(request):
    return find_benchmarks([request.param])[0]


def test_known_encoders(benchmark, tmp_path):
    check_known_encoders(benchmark, write_set(tmp_path, [row % 8 for row in range(240)], classes=COLORS), COLORS)


def test_chance_is_declared(benchmark, tmp_path):
    items = validate(benchmark, benchmark.data[0].local(write_set(tmp_path, range(8), classes=COLORS), None))
    table = run_benchmark(benchmark, items, class_encoders(COLORS)["perfect"]).items
    chance = table.groupby("metric")["chance"].unique().map(list).to_dict()
    assert chance == {"accuracy": [1 / 8], "mean per class": [1 / 8], "top-5 accuracy": [5 / 8]}
    assert (table["aspect"] == "general").all()


def test_the_mean_per_class_weighs_classes_and_accuracy_weighs_images(benchmark, tmp_path):
    """Right on the frequent class only: 6 of 10 images, 1 of 4 classes."""
    encoder = class_encoders()["perfect"]
    perfect = encoder.of_image
    encoder.of_image = lambda pixel: perfect(pixel) if pixel[0] == 0 else perfect((pixel + 1) % 4)
    found = means(benchmark, write_set(tmp_path, UNEVEN), encoder)
    assert found == pytest.approx({"accuracy": 0.6, "mean per class": 0.25})


def test_a_tiny_model_from_the_hub(benchmark, tmp_path, monkeypatch, clip):
    folder = write_set(tmp_path / ("b" * 40), UNEVEN, ending="webp")
    asked = []
    monkeypatch.setattr(hub, "snapshot_download", lambda repo, **how: asked.append(repo) or str(folder))
    items = validate(benchmark, load_items(benchmark))
    assert asked == [benchmark.data[0].repo] and items.origin.commit == "b" * 40
    report = run_benchmark(benchmark, items, Embedder(clip, device="cpu"))
    assert (report.images, report.texts, report.items["tie"].sum()) == (10, 8, 0)
    correct = report.items[report.items["metric"] == "accuracy"]["value"]
    expected = plain_zero_shot(clip, [cell["bytes"] for cell in items.images["image"]])
    assert correct.tolist() == [float(guess == label) for guess, label in zip(expected, UNEVEN, strict=True)]


def plain_zero_shot(folder, images) -> list[int]:
    """Classes by the mean of two prompts, by the model's own means."""
    model, processor = AutoModel.from_pretrained(folder).eval(), AutoProcessor.from_pretrained(folder)
    texts = [form.format(name) for name in CLASS_NAMES for form in ("a {} here", "one {}")]
    pictures = [Image.open(io.BytesIO(content)).convert("RGB") for content in images]
    with torch.no_grad():
        found = model(**processor(text=texts, images=pictures, padding=True, return_tensors="pt"))
    prompts = np.asarray(found.text_embeds).reshape(4, 2, -1).mean(axis=1)
    prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
    return (np.asarray(found.image_embeds) @ prompts.T).argmax(axis=1).tolist()


def test_items_without_words_are_refused(benchmark, tmp_path):
    items = validate(benchmark, benchmark.data[0].local(write_set(tmp_path, UNEVEN), None))
    with pytest.raises(ValueError, match="found 4 class names and 0 templates"):
        run_benchmark(benchmark, replace(items, templates=()), class_encoders()["perfect"])


def test_without_templates_the_error_says_where_to_get_them(benchmark, tmp_path):
    (write_set(tmp_path, UNEVEN) / "zeroshot_classification_templates.txt").unlink()
    with pytest.raises(ValueError, match=r"templates.txt is missing.*huggingface.co/clip-benchmark"):
        means(benchmark, tmp_path, class_encoders()["perfect"])
