"""ECCV Caption in its authors' files, with COCO's captions in both of their files (about 1 s)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks.retrieval.eccv_caption import (
    CAPTIONS_OF,
    COCO,
    ECCV_CAPTION,
    GALLERY,
    IMAGES_OF,
    KARPATHY,
)
from hfcomp.evaluation.engine import NO_IMAGE, run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import Sighted, items, photos

IMAGES = 8
METRICS = [
    f"{direction} {metric}"
    for direction in ("text-to-image", "image-to-text")
    for metric in ("mAP@R", "R-precision", "recall@1")
]
TEXTS = {10 * image + place: f"caption {place} of {image}" for image in range(IMAGES) for place in range(2)}
NEIGHBORS = {image: [image, (image + 1) % IMAGES] for image in range(6)}
"""Images 0 to 5 are queries; the captions of each are true of the next image too."""
TRUE = {
    image: [text for number, text in TEXTS.items() if number // 10 in (image, image - 1)] for image in range(IMAGES)
}


def coco(folder: Path) -> None:
    rows = [{"id": number, "image_id": number // 10, "caption": text} for number, text in TEXTS.items()]
    (folder / COCO).write_text(
        json.dumps({"images": [], "annotations": [*rows, {"id": 999, "caption": "of no test image"}]})
    )


def karpathy(folder: Path) -> None:
    images = [
        {
            "cocoid": image,
            "sentences": [{"sentid": 10 * image + place, "raw": TEXTS[10 * image + place]} for place in (0, 1)],
        }
        for image in range(IMAGES)
    ]
    (folder / KARPATHY).write_text(json.dumps({"images": images}))


def build(folder: Path, texts: Callable[[Path], None]) -> Path:
    texts(folder)
    own = {image: [10 * image, 10 * image + 1] for image in range(IMAGES)}
    (folder / GALLERY).write_text(json.dumps(own))
    (folder / IMAGES_OF).write_text(json.dumps({10 * image: near for image, near in NEIGHBORS.items()}))
    right = {image: own[image] + (own[image - 1] if image else []) for image in range(6)}
    (folder / CAPTIONS_OF).write_text(json.dumps(right))
    photos(folder / "val2014", {f"COCO_val2014_{image:012}.jpg": image for image in range(IMAGES)})
    return folder


@pytest.fixture(params=[coco, karpathy])
def folder(request, tmp_path) -> Path:
    return build(tmp_path, request.param)


def values(rows, encoder) -> dict[str, float]:
    return run_benchmark(ECCV_CAPTION, rows, Sighted(encoder)).items.groupby("metric")["value"].mean().to_dict()


def test_known_scorers(folder):
    rows = items(ECCV_CAPTION, folder)
    report = run_benchmark(ECCV_CAPTION, rows, Sighted(oracle.knowing(TRUE))).items
    assert list(report["metric"].unique()) == METRICS and len(report) == 6 * len(METRICS)
    assert report["value"].eq(1).all()
    assert report.loc[report["metric"] == "text-to-image mAP@R", "item"].iloc[1] == "1/10"
    assert set(values(rows, oracle.knowing(TRUE, 0, 1)).values()) == {0.0}
    constant = run_benchmark(ECCV_CAPTION, rows, Sighted(oracle.constant(IMAGES))).items
    assert constant["value"].eq(0).all() and constant.loc[constant["metric"].str.endswith("@1"), "tie"].all()


def test_a_random_scorer_is_at_chance(tmp_path):
    rows = items(ECCV_CAPTION, build(tmp_path, coco))
    drawn = [run_benchmark(ECCV_CAPTION, rows, Sighted(oracle.random(IMAGES, seed))).items for seed in range(20)]
    for metric in METRICS:
        parts = [report.loc[report["metric"] == metric] for report in drawn]
        means = [part["value"].mean() for part in parts]
        error = (sum((mean - sum(means) / 20) ** 2 for mean in means) / 19 / 20) ** 0.5
        assert sum(means) / 20 == pytest.approx(parts[0]["chance"].mean(), abs=4 * error), metric


def test_an_image_that_coco_calls_wrong_counts_as_right(folder):
    """Each caption finds the next image first, its own last but one: wrong in COCO, half of what is right here."""
    rows = items(ECCV_CAPTION, folder)
    order = {image: [text for number, text in TEXTS.items() if number // 10 == image - 1] for image in range(IMAGES)}
    metrics = values(rows, oracle.knowing(order))
    assert metrics["text-to-image recall@1"] == 1 and metrics["text-to-image R-precision"] == 1 / 2
    assert metrics["text-to-image mAP@R"] == 1 / 2


def test_what_is_right_and_not_there_is_noted(folder):
    (folder / "val2014" / "COCO_val2014_000000000003.jpg").unlink()
    rows = items(ECCV_CAPTION, folder)
    assert rows.left_out == {NO_IMAGE: 1}
    assert list(ECCV_CAPTION.protocol.notes(rows)) == [
        "1 right images are missing; 0 queries have none left",
        "2 right captions are missing; 0 queries have none left",
    ]
    assert set(values(rows, oracle.knowing(TRUE)).values()) == {1.0}


def test_captions_of_other_images_are_named(folder):
    for file in (COCO, KARPATHY):
        (folder / file).unlink(missing_ok=True)
    (folder / COCO).write_text(json.dumps({"annotations": [{"id": 0, "caption": "a"}]}))
    with pytest.raises(ValueError, match="original_image_to_caption.json, image 0: .* 1"):
        items(ECCV_CAPTION, folder)


def test_without_the_files_it_says_where_they_are():
    with pytest.raises(Unavailable, match="three files .*val2014=FOLDER"):
        load_items(ECCV_CAPTION)
