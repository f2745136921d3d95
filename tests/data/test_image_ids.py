"""The column `image_id` as numbers: equal for one image, unlike for rows without one."""

from __future__ import annotations

import pytest
from datasets import Dataset, Features, Image

from hfcomp.data import image_ids
from hfcomp.data.image_ids import image_key, photograph_ids, photograph_key, photographs, shared_rows
from hfcomp.data.row_values import row_fields


def test_equal_values_are_one_image():
    rows = [{"image_id": value} for value in ("a", "b", "a", 7, "7", -7)]
    keys = row_fields(rows, range(6))["image_id"].tolist()
    assert keys[0] == keys[2] and keys[3] == keys[4]
    assert len(set(keys)) == 4
    assert min(keys) >= 0


def test_rows_without_an_id_are_of_images_of_their_own():
    keys = [image_key(value, row) for row, value in enumerate((None, "", "  ", float("nan")))]
    assert keys == [-1, -2, -3, -4]


def test_without_the_column_there_is_no_key():
    assert "image_id" not in row_fields([{"caption": "a"}, {"caption": "b"}], [0, 1])


@pytest.mark.parametrize("value", [1.5, ["a"], True, b"a"])
def test_other_types_are_refused(value):
    with pytest.raises(ValueError, match=r"'image_id', row 3: found .* null"):
        image_key(value, 3)


def test_rows_that_share_an_image_are_counted():
    assert shared_rows(["a", "b", "a", None, "c", "c", "c", None]) == 5
    assert shared_rows(["a", "b"]) == 0
    assert shared_rows(["a"]) == 0
    assert shared_rows([None, None]) == 0


def test_one_image_for_all_rows_is_refused():
    with pytest.raises(ValueError, match=r"3 rows .*'x'.*{'image_id': str\(number\)}"):
        shared_rows(["x"] * 3)


def test_all_names_of_one_coco_photograph_have_one_key():
    names = ["000000000285.jpg", "COCO_val2014_000000000285.jpg", "val2017/000000000285.png", "COCO 285", "285"]
    assert {photograph_key(name) for name in names} == {"285"}
    assert photograph_key("COCO_train2014_000000000286.jpg") == "286"


@pytest.mark.parametrize("name", ["sandbox-training-0-12", "all/285", "v1.5", "a", "12-3", "1000268201_693b08cb0e"])
def test_other_names_are_their_own_key(name):
    assert photograph_key(name) == name


def test_folder_and_ending_of_a_file_do_not_count():
    assert photograph_key("flickr30k/1000268201_693b08cb0e.jpg") == photograph_key("1000268201_693b08cb0e.JPEG")


def test_a_row_without_an_id_is_of_its_file():
    cells = [
        {"bytes": None, "path": "a/1.jpg"},
        {"bytes": b"x", "path": None},
        None,
        {"bytes": None, "path": "a/1.jpg"},
    ]
    ids = photograph_ids(None, cells)
    assert ids[0] == ids[3] == "1.jpg" and ids[1] not in (None, "1.jpg") and ids[2] is None
    assert photograph_ids(["", "", float("nan"), None], cells) == ids
    assert photograph_ids([7, "", float("nan"), None], cells) == ["7", ids[1], None, "7"]  # as its file's other row
    assert photograph_ids([7, 8], iter(())) == ["7", "8"]  # no image is read


def test_files_of_one_name_are_known_from_the_folder_that_differs():
    paths = ["/data/a/1.jpg", "/data/b/1.jpg", "/data/a/1.jpg", "zip://2.jpg::/data/x.zip", "zip://3.jpg::/data/x.zip"]
    assert photograph_ids(None, paths) == ["a/1.jpg", "b/1.jpg", "a/1.jpg", "2.jpg", "3.jpg"]
    in_two = photograph_ids(None, ["zip://2.jpg::/data/x.zip", "zip://2.jpg::/data/y.zip"])
    assert len({*in_two}) == 2 and not any("data" in name for name in in_two)
    urls = photograph_ids(None, ["https://host/1.jpg?key=a", "https://host/1.jpg?key=a", "https://host/1.jpg?key=b"])
    assert urls[0] == urls[1] != urls[2] and not any("key" in name for name in urls)


def test_images_are_read_only_if_their_names_do_not_decide(monkeypatch):
    content = [b"x", b"y", b"x", b"z", b"z"]
    paths = ["1.jpg", "2.jpg", "1.jpg", None, None]
    cells = [{"bytes": data, "path": path} for data, path in zip(content, paths, strict=True)]
    rows = Dataset.from_dict({"image": cells}, features=Features({"image": Image(decode=False)}))
    read = []
    digest = image_ids._digest
    monkeypatch.setattr(image_ids, "_digest", lambda data: read.append(data) or digest(data))
    ids = photographs(rows)
    assert ids == ["1.jpg", "2.jpg", "1.jpg", digest(b"z"), digest(b"z")] == photograph_ids(None, cells)
    assert read[:4] == [b"x", b"x", b"z", b"z"]
    read.clear()
    assert photographs(rows.select([0, 1])) == ["1.jpg", "2.jpg"] and not read
