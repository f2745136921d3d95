"""Which rows of a training set show images that are scored, and which do not."""

from __future__ import annotations

import io

import datasets
import pytest
from PIL import Image

from hfcomp.data.columns import LEFT_OUT
from hfcomp.data.overlap import ScoredImages, find_overlap, without_known_images, without_overlap
from hfcomp.data.overlap.image_columns import photograph_name
from hfcomp.sandbox import choice_set, levels_set, training_set
from tests.data.photographs import encode, resize, texture

DRAWN = "hfcomp-sandbox (synthetic)"


def rows(images: list, **columns: list) -> datasets.Dataset:
    cells = [image if image is None or isinstance(image, dict) else {"bytes": image, "path": None} for image in images]
    features = datasets.Features({"image": datasets.Image(decode=False)})
    dataset = datasets.Dataset.from_dict({"image": cells}, features=features)
    for name, values in columns.items():
        dataset = dataset.add_column(name, values)
    return dataset


def scored_images(*images: bytes | None, **columns: list) -> list[ScoredImages]:
    return [ScoredImages("benchmark", [image and {"bytes": image, "path": None} for image in images], **columns)]


def files(*seeds: int) -> list[bytes]:
    return [encode(texture(seed)) for seed in seeds]


@pytest.fixture
def find(tmp_path):
    return lambda *given, **how: find_overlap(*given, folder=tmp_path, progress=False, **how)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"path": "coco/val2017/000000000285.jpg"}, None),  # img2dataset's keys may have twelve digits too
        ({"path": "COCO_val2014_000000000285.jpg"}, ("COCO", "285")),
        ({"path": "zip://train2014/COCO_train2014_000000581929.jpg::/data/a.zip"}, ("COCO", "581929")),
        ({"image_id": "000000000285.jpg"}, None),
        ({"image_id": "000000000285.jpg", "source": "COCO"}, ("COCO", "285")),
        ({"image_id": "12.jpg", "source": "COCO"}, None),  # made from the name of a file
        ({"image_id": "7", "source": "hfcomp-sandbox (synthetic)"}, ("hfcomp-sandbox", "7")),
        ({"image_id": "COCO 285"}, ("COCO", "285")),
        ({"image_id": 285, "source": "MS-COCO train2017"}, ("COCO", "285")),
        ({"image_id": "285", "source": "coco"}, ("COCO", "285")),
        ({"source": "COCO", "path": "a/000000000285.jpg"}, ("COCO", "285")),
        ({"image_id": "1", "source": "Flickr30k"}, None),  # every split may number its rows from 0
        ({"image_id": "285", "source": "inpainted cocoa"}, None),
        ({"image_id": "1"}, None),
        ({"image_id": 285, "path": "photos/285.jpg"}, None),
        ({"path": "00000/000000285.jpg"}, None),
        ({"path": "123456789012.jpg"}, None),
        ({"source": "cc3m", "path": "000000000285.jpg"}, None),
        ({}, None),
    ],
)
def test_names_are_those_of_a_source(given, name):
    assert photograph_name(**given) == name


def test_an_id_without_a_source_says_nothing(find):
    overlap = find(rows(files(0, 1), image_id=["1", "2"]), scored_images(*files(8, 9), ids=["1", "2"]))
    assert not len(overlap.rows) and overlap.scored == 2
    assert "none of 2 training rows" in str(overlap) and "2 scored images" in str(overlap)


def test_ids_of_a_source_whose_splits_count_from_0_are_not_one_image(find):
    train = rows(files(0, 1, 2), image_id=["0", "1", "2"], source=["shop"] * 3)
    overlap = find(train, scored_images(*files(8, 9, 1), ids=["0", "1", "2"], sources=["shop"] * 3))
    assert overlap.rows.tolist() == [1] and overlap.ways == {"name": 0, "file": 1, "pixels": 0, "look": 0}
    assert overlap.examples == ("column 'image', row 1 is benchmark, row 2 by its file",)


def test_a_bare_number_is_compared_by_content(find):
    """Keys of img2dataset and DataComp look like COCO's names."""
    names = [{"bytes": content, "path": f"00000000{row}234.jpg"} for row, content in enumerate(files(0, 1))]
    train = rows(names)
    overlap = find(train, scored_images(*files(7, 1), ids=["COCO_val2014_000000000234.jpg", "5"]))
    assert overlap.rows.tolist() == [1] and overlap.ways["file"] == 1


def test_the_same_drawing_in_another_color_is_another_image(find):
    shirts = []
    for color in ((200, 40, 40), (30, 128, 30), (70, 76, 200)):  # one grey
        shirt = Image.new("RGB", (96, 96), (240, 240, 240))
        shirt.paste(color, (30, 20, 66, 80))
        shirt.paste(color, (15, 20, 81, 36))
        file = io.BytesIO()
        shirt.save(file, "PNG")
        shirts.append(file.getvalue())
    overlap = find(rows([shirts[0]]), scored_images(*shirts[1:]))
    assert not len(overlap.rows)
    assert not overlap.alike


def scans(first: int, number: int) -> list[bytes]:
    """One page with a small mark that differs, as scans, radiographs and forms are."""
    page = texture(99)
    made = []
    for mark in range(first, first + number):
        scan = page.copy()
        scan.paste((255, 0, 0), (mark % 100, mark // 100 * 4, mark % 100 + 3, mark // 100 * 4 + 3))
        made.append(encode(scan))
    return made


def test_where_scored_images_look_alike_no_row_goes_by_look(find):
    overlap = find(rows(scans(0, 30)), scored_images(*scans(50, 6), *files(1)))
    assert not len(overlap.rows) and not len(overlap.unsure) and overlap.alike == 6
    assert "6 scored images" in overlap.remark()
    copy = encode(resize(texture(1), 90))
    assert find(rows([*scans(0, 30), copy]), scored_images(*scans(50, 6), *files(1))).rows.tolist() == [30]


def test_too_many_rows_by_look_alone_stay_and_are_unsure(find, tmp_path):
    known = scored_images(*scans(50, 1), *files(1))
    train = rows([*scans(0, 21), *files(1)])
    overlap = find(train, known)
    assert overlap.rows.tolist() == [21] and overlap.unsure.tolist() == list(range(21))
    assert overlap.doubt().startswith("21 of 22 training rows")
    assert "column 'image', row 0 is benchmark, row 0 by its look" in overlap.doubt()
    assert len(without_overlap(train, known, folder=tmp_path, progress=False)[0]) == 21
    assert len(find(rows(scans(0, 20)), known).rows) == 20


def test_names_and_files_alone_decode_nothing(find, monkeypatch):
    monkeypatch.setattr("hfcomp.data.overlap.image_hashes.image_record", lambda *given: pytest.fail("decoded"))
    train = rows([*files(0, 1), encode(resize(texture(2), 90))])
    overlap = find(train, scored_images(*files(1, 2)), looks=False)
    assert overlap.rows.tolist() == [1] and "only by name and file" in str(overlap)


def test_images_that_are_compared_with_nothing_are_counted_unread(find, monkeypatch):
    monkeypatch.setattr(
        "hfcomp.data.overlap.image_hashes.image_record", lambda *given: pytest.fail("hashed to be counted")
    )
    overlap = find(training_set(20, 0), scored_images(*files(0, 1), None))
    assert overlap.scored == 2 and not len(overlap.rows)


def test_columns_that_training_does_not_read_do_not_decide(find):
    train = rows(files(0, 1)).add_column(
        "negative_image", [{"bytes": content, "path": None} for content in files(5, 6)]
    )
    train = train.cast_column("negative_image", datasets.Image(decode=False))
    assert not len(find(train, scored_images(*files(6)), columns=["image"]).rows)


def test_photographs_of_coco_are_told_apart_by_their_numbers_without_being_read(find):
    broken = {"bytes": b"never decoded", "path": "COCO_val2014_000000000285.jpg"}
    train = rows([broken, {**broken, "path": "COCO_val2014_000000000286.jpg"}])
    overlap = find(train, [ScoredImages("SugarCrepe", ["nowhere/1.jpg"], ids=["000000000285.jpg"], sources=["COCO"])])
    assert overlap.rows.tolist() == [0] and overlap.unreadable == ()


def test_without_names_equal_files_equal_pixels_and_looks_are_found(find):
    first, second, third, fourth = (texture(seed) for seed in range(4))
    png = io.BytesIO()
    Image.open(io.BytesIO(encode(second))).save(png, "PNG")
    train = rows([encode(fourth), encode(first), png.getvalue(), encode(resize(third, 90), 60), None, b"broken"])
    overlap = find(train, scored_images(*files(0, 1, 2), None))
    assert overlap.rows.tolist() == [1, 2, 3] and overlap.ways == {"name": 0, "file": 1, "pixels": 1, "look": 1}
    assert (overlap.total, overlap.scored, overlap.shown) == (6, 3, 3)
    assert "3 of 6 training rows show 3 of the 3 scored images (1 by file, 1 by pixels, 1 by look;" in str(overlap)
    assert overlap.remark().startswith(
        "1 images cannot be read and were not compared; the first: column 'image', row 5"
    )


def test_a_photograph_of_coco_is_found_in_a_set_that_calls_it_otherwise(find):
    train = rows(
        [
            {"bytes": content, "path": f"COCO_val2014_00000000000{number}.jpg"}
            for number, content in enumerate(files(0, 1))
        ]
    )
    overlap = find(train, scored_images(encode(resize(texture(1), 100)), *files(7)))
    assert overlap.rows.tolist() == [1] and overlap.ways["look"] == 1
    assert "(COCO 1) is benchmark, row 0 by its look" in overlap.examples[0]


def test_negative_images_are_looked_at_too(find):
    train = rows(files(0, 1, 2)).add_column(
        "negative_image", [{"bytes": content, "path": None} for content in files(5, 6, 7)]
    )
    train = train.cast_column("negative_image", datasets.Image(decode=False))
    overlap = find(train, scored_images(*files(6)))
    assert overlap.rows.tolist() == [1] and "column 'negative_image', row 1" in overlap.examples[0]


def test_flat_images_count_when_their_pixels_are_equal_alone(find):
    flat = [Image.new("RGB", (32, 32), (shade,) * 3) for shade in (100, 101)]
    overlap = find(rows([encode(image) for image in flat]), scored_images(encode(flat[1])))
    assert overlap.rows.tolist() == [1] and overlap.ways["file"] == 1


def test_no_scene_of_the_sandbox_is_taken_for_another(find):
    """Its drawings look alike: by hashes alone many training scenes would be found among the scored ones."""
    train = training_set(200, 0)
    sets = [
        ScoredImages(name, dataset["image"], dataset["image_id"][:], dataset["source"][:])
        for name, dataset in {"choice": choice_set(20, 0), "levels": levels_set(50, 0)}.items()
    ]
    overlap = find(train, sets)
    assert not len(overlap.rows) and overlap.scored == len(choice_set(20, 0)) + 50
    again = find(train, [ScoredImages("the same", train["image"], train["image_id"][:], [DRAWN] * 200)])
    assert len(again.rows) == 200


def test_a_set_without_the_rows_and_with_none_to_leave_out(tmp_path):
    train = rows(files(0, 1, 2), caption=["a", "b", "c"])
    kept, overlap = without_overlap(train, scored_images(*files(1)), folder=tmp_path, progress=False)
    assert kept["caption"][:] == ["a", "c"] and overlap.rows.tolist() == [1]
    same, overlap = without_overlap(train, scored_images(*files(9)), folder=tmp_path, progress=False)
    assert same is train and not len(overlap.rows)


def as_stream(train: datasets.Dataset) -> datasets.IterableDataset:
    return train.to_iterable_dataset(num_shards=1)


def test_a_stream_leaves_out_names_and_files_and_counts_them():
    named = {"bytes": files(4)[0], "path": "COCO_val2014_000000000285.jpg"}
    train = rows([*files(0, 1), named, *files(2)], caption=["a", "b", "c", "d"])
    images = [
        *scored_images(*files(1)),
        ScoredImages("SugarCrepe", [None], ids=["000000000285.jpg"], sources=["COCO"]),
    ]
    read = list(without_known_images(as_stream(train), images))
    assert [(row["caption"], row[LEFT_OUT]) for row in read] == [("a", 0), ("d", 2)]
    counted = train.add_column(LEFT_OUT, [3, 0, 1, 0])
    read = list(without_known_images(as_stream(counted), images))
    assert [(row["caption"], row[LEFT_OUT]) for row in read] == [("a", 3), ("d", 3)]
    with pytest.raises(ValueError, match="overlap: .*COCO 285.* refuse"):
        list(without_known_images(as_stream(train.select([0, 2])), images, refuse=True))
    with pytest.raises(TypeError, match="Use without_known_images"):
        find_overlap(as_stream(train), images)
