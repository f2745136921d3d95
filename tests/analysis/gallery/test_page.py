"""What a page holds of a set: rows, texts, pictures, ids; and what is refused or counted."""

from __future__ import annotations

import pytest
from datasets import Dataset, Features, Image, Value

from hfcomp.analysis.gallery.options import GalleryOptions
from hfcomp.analysis.gallery.page import write_gallery
from hfcomp.analysis.gallery.rows import choose_rows
from tests import tiny
from tests.analysis.gallery.pages import HOSTILE, dataset, encode, held, mask, page, save_rows


def test_rows_hold_texts_changes_and_other_columns(tmp_path):
    rows = held(page(save_rows(tmp_path), tmp_path), "data")
    assert [row["row"] for row in rows] == list(range(8))
    first = rows[0]
    color = first["caption"].split()[1]
    (negative,) = first["negatives"]  # the empty one is masked
    assert negative["changes"][:3] == [["same", "a"], ["removed", color], ["added", negative["text"].split()[1]]]
    assert negative["kind"] == "swap_att" and negative["facts"] == "swap_att"
    assert first["image_id"] == "tiny-0" and first["positives"] == [f"there is {first['caption']}"]
    assert first["facts"] == [["group", "group 0"]] and first["scores"] is None
    assert rows[2]["negative_image"] is None and rows[2]["mask"] is None


def test_equal_pictures_are_in_the_page_once(tmp_path):
    same = {row: encode(tiny.image(0)) for row in range(8)}
    path = page(save_rows(tmp_path, dataset(image=same)), tmp_path)
    rows = held(path, "data")
    assert {row["image"] for row in rows} == {0}
    assert len(held(path, "pictures")) == 1 + 6 + 1  # six negative images, one mask


def test_some_rows_are_drawn_with_a_seed_and_keep_their_numbers_and_ids(tmp_path):
    source = save_rows(tmp_path)
    whole = {row["row"]: row for row in held(page(source, tmp_path), "data")}
    drawn = [held(page(source, tmp_path, rows=4, seed=seed), "data") for seed in (1, 1, 2)]
    numbers = [[row["row"] for row in sample] for sample in drawn]
    assert numbers[0] == numbers[1] != numbers[2] and numbers[0] == sorted(numbers[0]) != [0, 1, 2, 3]
    assert all(row["id"] == whole[row["row"]]["id"] for sample in drawn for row in sample)
    assert [row["row"] for row in held(page(source, tmp_path, rows=3), "data")] == [0, 1, 2]
    assert len({row["id"] for row in whole.values()}) == 8


def test_a_row_s_id_is_of_its_content_and_the_fingerprint_of_all_texts(tmp_path):
    def facts(name, **changes):
        path = page(save_rows(tmp_path, dataset(**changes), name), tmp_path)
        return held(path, "about")["fingerprint"], [row["id"] for row in held(path, "data")]

    fingerprint, ids = facts("one")
    assert facts("same") == (fingerprint, ids)
    other = facts("text", caption={3: "another"})
    assert (
        other[0] != fingerprint
        and [first != second for first, second in zip(ids, other[1], strict=True)].index(True) == 3
    )
    other = facts("image", image={3: encode(tiny.image(77))})
    assert other[0] == fingerprint and other[1][3] != ids[3] and other[1][:3] == ids[:3]


def test_texts_of_a_data_set_are_inert(tmp_path):
    rows = dataset(caption={0: HOSTILE}, negative_captions={0: [HOSTILE, HOSTILE]}, group={0: HOSTILE})
    path = page(save_rows(tmp_path, rows), tmp_path)
    assert "<img src=x" not in path.read_text("utf-8")
    assert held(path, "data")[0]["caption"] == HOSTILE
    path = page(save_rows(tmp_path, dataset(caption={0: "a \u202eb"}), "turned"), tmp_path)
    assert held(path, "data")[0]["caption"] == "a \\u202eb"


def test_an_image_that_cannot_be_read_is_counted_and_named(tmp_path):
    broken = {"bytes": b"no image", "path": None}
    source = save_rows(tmp_path, dataset(image={3: broken, 5: broken}, mask={0: broken}))
    path = page(source, tmp_path)
    rows = held(path, "data")
    assert "column 'image', row 3" in rows[3]["image"] and "row 0" in rows[0]["mask"]
    assert isinstance(rows[4]["image"], int)
    text = path.read_text("utf-8")
    assert "2 images of column &#x27;image&#x27;" in text
    assert "1 image of column &#x27;mask&#x27;" in text


def test_lists_of_captions_and_texts_in_place_of_lists_are_shown(tmp_path):
    own = {"image": encode(tiny.image(0)), "caption": "a red cube", "negative_captions": "a blue cube"}
    texts = dict.fromkeys(("caption", "negative_captions"), Value("string"))
    rows = Dataset.from_list([own], features=Features({"image": Image(decode=False)} | texts))
    (row,) = held(page(save_rows(tmp_path, rows), tmp_path), "data")
    assert [negative["text"] for negative in row["negatives"]] == ["a blue cube"]
    rows = Dataset.from_dict({"image": [encode(tiny.image(0))], "caption": [["one", "two"]]})
    rows = rows.cast_column("image", Image())
    (row,) = held(page(save_rows(tmp_path, rows, "several"), tmp_path), "data")
    assert row["caption"] == "one" and row["positives"] == ["two"] and row["negatives"] == []


def test_a_mask_lies_over_the_picture_s_size(tmp_path):
    large = encode(tiny.image(5, (640, 320)))
    source = save_rows(tmp_path, dataset(1, negative_image={0: large}, mask={0: mask()}))
    path = page(source, tmp_path, image_size=160)
    (row,), pictures = held(path, "data"), held(path, "pictures")
    assert pictures[row["negative_image"]][1:] == [160, 80] == pictures[row["mask"]][1:]


@pytest.mark.parametrize(
    ("drop", "names", "message"),
    [
        ("image", "", "'image'.*negative_image.*--column_names image="),
        ("caption", "", "needs the column 'caption'"),
        (None, "image=caption", "'image', row 0 .*not exist"),
    ],
)
def test_a_set_without_images_or_captions_is_refused(tmp_path, drop, names, message):
    rows = dataset() if drop is None else dataset().remove_columns(drop)
    if drop is None:
        rows = rows.remove_columns("image").add_column("title", ["a"] * 8)
        names = "image=caption,caption=title"
    with pytest.raises(ValueError, match=message):
        page(save_rows(tmp_path, rows), tmp_path, column_names=names)


def test_no_rows_no_readable_image_and_a_page_that_is_there_are_refused(tmp_path):
    broken = {row: {"bytes": b"no image", "path": None} for row in range(8)}
    with pytest.raises(ValueError, match="8 images .*column 'image', row 0"):
        page(save_rows(tmp_path, dataset(image=broken)), tmp_path)
    with pytest.raises(ValueError, match=r"no rows .*'train'"):
        choose_rows(dataset().select([]), "empty", GalleryOptions())
    source = save_rows(tmp_path, name="whole")
    path = write_gallery(source, tmp_path / "new", GalleryOptions()).path
    assert path == tmp_path / "new" / "gallery.html"
    with pytest.raises(ValueError, match=r"gallery\.html.*--overwrite"):
        write_gallery(source, tmp_path / "new", GalleryOptions())
    (tmp_path / "rows.csv").touch()
    with pytest.raises(ValueError, match=r"rows\.csv exists .*--output"):
        write_gallery(source, tmp_path / "rows.csv", GalleryOptions(overwrite=True))
    with pytest.raises(ValueError, match="found 3 models"):
        GalleryOptions(models=("a", "b", "c"))
    with pytest.raises(ValueError, match="rows: found 0"):
        GalleryOptions(rows=0)
