"""COCO as users download it, in small: COCO's own captions, Karpathy's splits, and what is wrong with a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hfcomp.data.loading import load_training_set, load_training_stream
from hfcomp.data.overlap.image_columns import photograph_name
from hfcomp.data.publishing import COCO_LICENSES, allows_adaptation
from tests.factory.builds import png

LICENSES = [
    {"id": 4, "name": "Attribution License", "url": "http://x"},
    {"id": 6, "name": "Attribution-NoDerivs", "url": ""},
]


def annotations(numbers, *, licenses=LICENSES) -> dict:
    images = [
        {"id": number, "file_name": f"{number:012d}.jpg", "license": 4 if number % 2 else 6, "height": 4, "width": 4}
        for number in numbers
    ]
    captions = [
        {"image_id": number, "id": 10 * number + place, "caption": f"caption {place} of {number}"}
        for place in range(2)
        for number in reversed(numbers)
    ]
    return {"info": {}, "images": images, "licenses": licenses, "type": "captions", "annotations": captions}


def write_json(path: Path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def write_images(folder: Path, names) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for place, name in enumerate(names):
        (folder / name).write_bytes(png(20 * place))


@pytest.fixture
def coco(tmp_path) -> Path:
    """Two splits of 2017: `train2017` beside the annotations, `val2017` under `images`."""
    for split, numbers, images in (("train", (1, 2, 3), "train2017"), ("val", (7, 8), "images/val2017")):
        write_json(tmp_path / f"coco/annotations/captions_{split}2017.json", annotations(numbers))
        write_images(tmp_path / "coco" / images, [f"{number:012d}.jpg" for number in numbers])
    write_json(tmp_path / "coco/annotations/instances_train2017.json", {})
    return tmp_path / "coco"


def test_the_captions_of_coco_are_rows_of_the_contract(coco):
    rows = load_training_set(str(coco))
    assert rows["caption"][0] == ["caption 0 of 1", "caption 1 of 1"] and rows["image_id"][:] == ["1", "2", "3"]
    assert rows["license"][:] == ["Attribution License", "Attribution-NoDerivs", "Attribution License"]
    assert rows[2]["image"].getpixel((0, 0)) == (40, 40, 40)
    assert {photograph_name(row["image_id"], row["source"]) for row in rows} == {("COCO", n) for n in "123"}
    assert load_training_set(str(coco), split="val2017")["image_id"][:] == ["7", "8"]
    assert load_training_set(str(coco), split="train[1:]+val")["image_id"][:] == ["2", "3", "7", "8"]
    with pytest.raises(ValueError, match="'test'.*train2017, val2017"):
        load_training_set(str(coco), split="test")
    with pytest.raises(ValueError, match="streaming: .*folder"):
        load_training_stream(str(coco))


def karpathy(*entries) -> dict:
    images = [
        {
            "filepath": f"{split_of_coco}2014",
            "filename": f"COCO_{split_of_coco}2014_{number:012d}.jpg",
            "cocoid": number,
            "split": split,
            "sentids": [0],
            "sentences": [{"tokens": ["a"], "raw": f" A text of {number}.\n", "imgid": 0, "sentid": 0}],
        }
        for split, split_of_coco, number in entries
    ]
    return {"images": images, "dataset": "coco"}


def test_karpathys_splits_are_read_from_the_images_of_2014(tmp_path):
    entries = (("train", "train", 1), ("restval", "val", 2), ("test", "val", 3), ("train", "train", 4))
    write_json(tmp_path / "dataset_coco.json", karpathy(*entries))
    for _, part, number in entries:
        write_images(tmp_path / f"{part}2014", [f"COCO_{part}2014_{number:012d}.jpg"])
    rows = load_training_set(str(tmp_path), split="train+restval")
    assert rows["caption"][:] == [["A text of 1."], ["A text of 4."], ["A text of 2."]]
    assert rows["license"][:] == [None] * 3 and rows[0]["image"].size == (4, 4)
    with pytest.raises(ValueError, match="'dev'.*train, restval, val, test"):
        load_training_set(str(tmp_path), split="dev")


def test_karpathys_splits_are_read_from_the_images_of_2017_with_their_licenses(coco):
    write_json(coco / "annotations/dataset_coco.json", karpathy(("train", "val", 7), ("train", "train", 2)))
    rows = load_training_set(str(coco), config="karpathy")
    assert rows["image_id"][:] == ["7", "2"] and [row["image"].size for row in rows] == [(4, 4)] * 2
    assert rows["license"][:] == ["Attribution License", "Attribution-NoDerivs"]
    assert load_training_set(str(coco))["image_id"][:] == ["1", "2", "3"]
    with pytest.raises(ValueError, match="'caption'.*: captions, karpathy"):
        load_training_set(str(coco), config="caption")


def test_a_split_of_two_years_has_to_be_named(coco):
    write_json(coco / "annotations/captions_train2014.json", annotations((1,)))
    with pytest.raises(ValueError, match="'train' .*train2014 and train2017"):
        load_training_set(str(coco))
    with pytest.raises(ValueError, match="train2014 .*missing: .*captions_train2014"):
        load_training_set(str(coco), split="train2014")


def change_content(change) -> dict:
    content = annotations((1, 2, 3))
    change(content)
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], r"expected a list under the key 'images', .*found: \[1\]"),
        ({"info": {}, "annotations": []}, "expected a list under the key 'images', .*found: 'info', 'annotations'"),
        (change_content(lambda content: content.pop("annotations")), "under the key 'annotations'"),
        (
            change_content(lambda content: content["images"][1].pop("file_name")),
            r"images\[1\]\['file_name'\] is None, expected a string",
        ),
        (change_content(lambda content: content["images"].insert(0, 7)), r"images\[0\] is 7,"),
        (
            change_content(lambda content: content["annotations"][3].update(caption=5)),
            r"annotations\[3\]\['caption'\] is 5,",
        ),
        (
            change_content(lambda content: content["annotations"][0].update(image_id="1")),
            r"annotations\[0\]\['image_id'\] is '1',",
        ),
        (change_content(lambda content: content["annotations"][0].update(image_id=9)), "is 9, .*'images'"),
        (change_content(lambda content: content["images"][0].update(file_name="x.jpg")), None),
        (
            change_content(lambda content: [two.update(file_name="x.jpg") for two in content["images"]]),
            "none of its 3 images exists",
        ),
    ],
)
def test_a_file_that_is_not_coco_s_is_named_with_its_key(coco, content, message):
    write_json(coco / "annotations/captions_train2017.json", content)
    if message is None:
        assert len(load_training_set(str(coco))) == 3
        return
    with pytest.raises(ValueError, match=f"captions_train2017.json: .*{message}") as raised:
        load_training_set(str(coco))
    assert "\n" not in str(raised.value)


def test_a_file_that_was_cut_is_named(coco):
    path = coco / "annotations/captions_train2017.json"
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ValueError, match="captions_train2017.json: not JSON"):
        load_training_set(str(coco))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        *((name, "NoDerivs" not in name) for name in COCO_LICENSES.values()),
        *(
            ("cc-by-nd-4.0", False),
            ("cc-by-nc-nd-4.0", False),
            ("CC BY-ND 2.0", False),
            ("All rights reserved", False),
        ),
        ("http://creativecommons.org/licenses/by-nd/2.0/", False),
        *(("cc-by-4.0", True), ("cc0-1.0", True), ("CC BY-NC-SA 2.0", True), ("apache-2.0", True), ("mit", True)),
        *(("http://creativecommons.org/licenses/by/2.0/", True), ("Public Domain Mark", True)),
        *((None, None), ("", None), ("other", None), ("unknown", None), ("proprietary", None), ("limited", None)),
    ],
)
def test_licenses_allow_adaptation_or_not(text, allowed):
    assert allows_adaptation(text) is allowed


REAL = os.environ.get("HFCOMP_REAL_DATA")


@pytest.mark.skipif(not REAL, reason="HFCOMP_REAL_DATA is not set")
def test_the_real_captions_with_the_photographs_that_are_there(tmp_path):
    (tmp_path / "annotations").symlink_to(Path(REAL) / "coco", target_is_directory=True)
    (tmp_path / "val2017").symlink_to(Path(REAL) / "coco/open_256", target_is_directory=True)
    rows = load_training_set(str(tmp_path), split="val2017")
    assert len(rows) == 5000 and sum(map(len, rows["caption"])) == 25_014
    assert set(rows["license"]) <= set(COCO_LICENSES.values())
    known = {row["image_id"]: row for row in rows.remove_columns("image")}
    stated = [json.loads(line) for line in (Path(REAL) / "coco_open_256.jsonl").read_text().splitlines()]
    both = [(known[str(row["image_id"])], row) for row in stated if str(row["image_id"]) in known]
    assert len(both) == 410
    for record, row in both:
        assert record["license"] == row["license"] and record["caption"] == row["captions"]
        assert allows_adaptation(record["license"])
