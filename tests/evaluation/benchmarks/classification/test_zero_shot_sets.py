"""Zero-shot classification, and ImageNet's classes in other pictures."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModel, AutoProcessor

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks import benchmarks, find_benchmarks, suite
from hfcomp.evaluation.benchmarks.classification.zero_shot_sets import IMAGENETS, OBJECTNET, ZERO_SHOT
from hfcomp.evaluation.cells import decoded
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import run_benchmark, validate
from hfcomp.evaluation.protocols.classification import ZeroShot
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import GENERAL, Folders, Unavailable
from hfcomp.evaluation.webdataset import OTHER_CLASS
from tests import tolerances
from tests.evaluation.webdatasets import (
    CLASS_NAMES,
    FirstPixelEncoder,
    check_known_encoders,
    class_encoders,
    encode_image,
    means,
    write_set,
)

VTAB_COPIES = ["cifar10", "cifar100", "dtd", "pets", "caltech101", "flowers"]
NAMES = ["imagenet1k", "food101", "sun397", "cars", "fgvc_aircraft", *VTAB_COPIES]
COLORS = ("red", "blue", "green", "white", "black", "grey", "pink", "teal")
UNEVEN = [0] * 6 + [1] * 2 + [2, 3]


def test_every_set_is_known_and_reads_its_own_repository():
    assert {entry.name for entry in ZERO_SHOT} == set(NAMES)
    assert all(benchmarks()[name].suite == GENERAL and benchmarks()[name].protocol == ZeroShot() for name in NAMES)
    for entry in ZERO_SHOT:
        repo = f"vtab-{entry.name}" if entry.name in VTAB_COPIES else entry.name
        assert entry.data[0].repo == f"clip-benchmark/wds_{repo}"
    assert not any(entry.data[0].train for entry in ZERO_SHOT)


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
    values = means(benchmark, write_set(tmp_path, UNEVEN), encoder)
    assert values == pytest.approx({"accuracy": 0.6, "mean per class": 0.25})


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
        output = model(**processor(text=texts, images=pictures, padding=True, return_tensors="pt"))
    prompts = np.asarray(output.text_embeds).reshape(4, 2, -1).mean(axis=1)
    prompts /= np.linalg.norm(prompts, axis=1, keepdims=True)
    return (np.asarray(output.image_embeds) @ prompts.T).argmax(axis=1).tolist()


def test_items_without_words_are_refused(benchmark, tmp_path):
    items = validate(benchmark, benchmark.data[0].local(write_set(tmp_path, UNEVEN), None))
    with pytest.raises(ValueError, match="4 class names and 0 templates"):
        run_benchmark(benchmark, replace(items, templates=()), class_encoders()["perfect"])


def test_without_templates_the_error_says_where_to_get_them(benchmark, tmp_path):
    (write_set(tmp_path, UNEVEN) / "zeroshot_classification_templates.txt").unlink()
    with pytest.raises(ValueError, match=r"templates.txt .*missing.*huggingface.co/clip-benchmark"):
        means(benchmark, tmp_path, class_encoders()["perfect"])


BY_NAME = {entry.name: entry for entry in (*IMAGENETS, OBJECTNET)}
FOLDERS = {
    "imagenet_v2": ("imagenetv2-matched-frequency-format-val", ["0", "2", "10", "100"]),  # in the order of numbers
    "imagenet_a": ("imagenet-a", ["n01498041", "n01531178", "n07749582", "n12267677"]),
    "imagenet_r": ("imagenet-r", ["n01443537", "n01484850", "n01494475", "n07749582"]),
    "imagenet_sketch": ("sketch", ["n01440764", "n01443537", "n01484850", "n01491361"]),
    "objectnet": ("objectnet-1.0/images", ["air_freshener", "alarm_clock", "t-shirt", "bench"]),
}
OBJECTNET_LABELS = {
    "alarm_clock": "Alarm clock",
    "bench": "Bench",
    "t-shirt": "T-shirt",
    "weight": "Weight (exercise)",
}


def add_border(content: bytes) -> bytes:
    """An image with a red border of one pixel, and one more of its own."""
    inner = Image.open(io.BytesIO(content))
    image = Image.new("RGB", (inner.width + 4, inner.height + 4), (255, 0, 0))
    image.paste(inner, (2, 2))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def class_folders(name: str, folder: Path, images: int = 3) -> Path:
    """As the authors' archive unpacks, beside the names and prompts."""
    place, classes = FOLDERS[name]
    if name == "objectnet":
        classes = sorted(OBJECTNET_LABELS)
        write_mappings(folder)
        other = folder / place / "air_freshener"
        other.mkdir(parents=True)
        (other / "0.png").write_bytes(add_border(encode_image(0, 99)))
    for label, class_name in enumerate(classes):
        (folder / place / class_name).mkdir(parents=True)
        for number in range(images):
            content = encode_image(label, 10 * label + number)
            content = add_border(content) if name == "objectnet" else content
            (folder / place / class_name / f"{number}.{'JPEG' if name == 'imagenet_sketch' else 'png'}").write_bytes(
                content
            )
    (folder / place / "README.txt").write_text("about the set")
    (folder / "classnames.txt").write_text("".join(f"{name}\n" for name in CLASS_NAMES))
    (folder / "zeroshot_classification_templates.txt").write_text("a {c} here\none {c}\n")
    return folder


def write_mappings(folder: Path) -> None:
    place = folder / "objectnet-1.0" / "mappings"
    place.mkdir(parents=True)
    labels = OBJECTNET_LABELS | {"air_freshener": "Air freshener"}
    (place / "folder_to_objectnet_label.json").write_text(json.dumps(labels))
    (place / "objectnet_to_imagenet_1k.json").write_text(json.dumps(dict.fromkeys(OBJECTNET_LABELS.values(), "one")))


def load(name: str, folder: Path):
    return validate(BY_NAME[name], load_items(BY_NAME[name], Folders(own={name: folder})))


def seeing_inset(encoder: FirstPixelEncoder) -> FirstPixelEncoder:
    """The same encoder for images that are cut when they are read."""
    index = encoder.index_images

    def cut(cells, **how):
        streams = []
        for cell in cells:
            streams.append(io.BytesIO())
            decoded(cell, "image").save(streams[-1], "PNG")
        return index([stream.getvalue() for stream in streams], **how)

    encoder.index_images = cut
    return encoder


@pytest.mark.parametrize("name", FOLDERS)
def test_known_encoders_on_folders_of_classes(tmp_path, name):
    """A label that is off by one, or a border that stays, would cost the perfect encoder everything."""
    folder = class_folders(name, tmp_path)
    items = load(name, folder)
    assert (items.rows["label"][:], items.classes) == ([0] * 3 + [1] * 3 + [2] * 3 + [3] * 3, CLASS_NAMES)
    results = {
        kind: run_benchmark(BY_NAME[name], items, seeing_inset(encoder)).items.groupby("metric")["value"].mean()
        for kind, encoder in class_encoders().items()
    }
    assert results["perfect"].to_dict() == {"accuracy": 1, "mean per class": 1}
    assert results["inverted"]["accuracy"] == results["constant"]["accuracy"] == 0


@pytest.mark.parametrize("name", ["imagenet_v2", "imagenet_r"])
def test_known_encoders_on_the_layout_of_the_hub(tmp_path, name):
    colors = ("red", "blue", "green", "white", "black", "grey", "pink", "teal")
    folder = write_set(tmp_path, [row % 8 for row in range(160)], classes=colors)
    results = {kind: means(BY_NAME[name], folder, encoder) for kind, encoder in class_encoders(colors).items()}
    assert set(results["perfect"].values()) == {1.0} and set(results["constant"].values()) == {0.0}
    assert results["inverted"]["accuracy"] == 0
    assert results["random"]["accuracy"] == pytest.approx(1 / 8, abs=0.1)


def test_the_border_of_objectnet_goes_in_both_layouts(tmp_path, clip):
    """A tiny CLIP sees the image as if the border had never been there."""
    raw = class_folders("objectnet", tmp_path / "raw")
    items = load("objectnet", raw)
    assert items.left_out == {OTHER_CLASS: 1}
    pixels = [np.asarray(decoded(cell, "image")) for cell in items.images["image"]]
    expected = [np.asarray(Image.open(io.BytesIO(encode_image(n // 3, 10 * (n // 3) + n % 3)))) for n in range(12)]
    assert all((array == expected_array).all() for array, expected_array in zip(pixels, expected, strict=True))
    packed = load("objectnet", write_set(tmp_path / "packed", [0, 1]))
    with pytest.raises(ValueError, match="4 x 4 .* 2 "):
        decoded(packed.images["image"][0], "image")
    seen = Embedder(clip, device="cpu").images([items.images["image"][0], items.images["image"][0].cell, expected[0]])
    np.testing.assert_allclose(seen[0], seen[2], atol=tolerances.embedding())
    assert not np.allclose(seen[0], seen[1], atol=1e-3)


def test_names_and_prompts_come_from_the_hub_where_the_folder_lacks_them(tmp_path, monkeypatch):
    folder = class_folders("imagenet_a", tmp_path / "own") / "imagenet-a"
    names = write_set(tmp_path / "hub", [0])
    asked = []
    monkeypatch.setattr(hub, "repository", lambda repo, patterns, revision: asked.append((repo, patterns)) or names)
    # the authors' own folder, which holds neither file
    assert load("imagenet_a", folder).classes == CLASS_NAMES
    files = ["classnames.txt", "zeroshot_classification_templates.txt"]
    assert asked == [("clip-benchmark/wds_imagenet-a", files)]

    def offline(repo, patterns, revision):
        raise Unavailable(f"{repo} cannot be read (ConnectionError).", "")

    monkeypatch.setattr(hub, "repository", offline)
    with pytest.raises(Unavailable, match=r"no classnames.txt .*https://huggingface.co/data"):
        load("imagenet_a", folder)


def test_a_class_that_is_missing_would_shift_all_labels_and_is_an_error(tmp_path):
    folder = class_folders("imagenet_r", tmp_path)
    (folder / "imagenet-r" / "n01484850").rename(tmp_path / "away")
    with pytest.raises(ValueError, match="found 3 .*expected 4.*classnames.txt"):
        load("imagenet_r", folder)
    (folder / "imagenet-r" / "n01484850").mkdir()
    with pytest.raises(ValueError, match="n01484850 .*no images.* webp, jpg"):
        load("imagenet_r", folder)


def test_the_suite_has_what_can_be_fetched():
    general = {entry.name for entry in suite("general")}
    assert {"imagenet_v2", "imagenet_a", "imagenet_r", "imagenet_sketch"} <= general and "objectnet" not in general
    assert {entry.name for entry in find_benchmarks(["imagenet"])} == {entry.name for entry in IMAGENETS}
