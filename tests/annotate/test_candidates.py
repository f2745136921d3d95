"""Candidates of a source: which images and captions become items, in which order, and what a second call adds."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image

from hfcomp.annotate.candidates import (
    FORBIDDEN,
    NO_KEYWORD,
    OTHER_ITEM,
    UNKNOWN,
    UNREADABLE,
    CandidateOptions,
    add_candidates,
)
from hfcomp.annotate.captions import concept_keywords, replacements
from hfcomp.data.annotations.project import IMAGES, Project

REAL = os.environ.get("HFCOMP_REAL_DATA")
OPEN, CLOSED = "Attribution License", "Attribution-NoDerivs License"
ROWS = [
    {"image_id": 1, "caption": ["A red car.", "Two dogs on a sofa.", "Nothing to see."], "license": OPEN},
    {"image_id": 2, "caption": ["A RED car and a small dog", "a person"], "license": "CC BY-NC-SA 2.0"},
    {"image_id": 3, "caption": ["A cat"], "license": CLOSED},
    {"image_id": 4, "caption": ["A cat"], "license": "ask me"},
    {"image_id": 5, "caption": ["A cat"], "license": None},
    {"image_id": 6, "caption": ["A person beside another person"], "license": OPEN},
]


def picture(number: int, mode: str = "RGB", size: tuple[int, int] = (20, 14)) -> Image.Image:
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def encode(image: Image.Image, kind: str = "JPEG", **settings) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **settings)
    return stream.getvalue()


def write(folder: Path, rows: list[dict], card: str = "") -> Path:
    """A dataset in the Hub's layout, with a picture for each row that has none."""
    folder.mkdir(parents=True, exist_ok=True)
    own = [{"image": {"bytes": encode(picture(number)), "path": None}} | row for number, row in enumerate(rows)]
    dataset = datasets.Dataset.from_list(own).cast_column("image", datasets.Image())
    dataset.to_parquet(folder / "train.parquet")
    (folder / "README.md").write_text(f"---\nlicense: {card}\n---\n" if card else "")
    return folder


def add(project: Project, source: Path, **settings) -> tuple[int, list[str]]:
    lines: list[str] = []
    options = CandidateOptions(source=str(source), **settings)
    return add_candidates(project, options, log=lines.append), lines


def items(project: Project) -> dict:
    return {item.id: item for item in project.decisions.items()}


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path / "project")


def test_an_item_is_an_image_with_its_captions_of_one_concept(project, tmp_path):
    number, lines = add(project, write(tmp_path / "set", ROWS))
    by_id = items(project)
    assert number == len(by_id) == 5
    assert {name: (item.concept, item.captions, item.keywords) for name, item in by_id.items()} == {
        "1/color": ("color", ("A red car.",), ("red",)),
        "1/object": ("object", ("A red car.", "Two dogs on a sofa."), ("car", "dog")),
        "2/color": ("color", ("A RED car and a small dog",), ("red",)),
        "2/object": ("object", ("A RED car and a small dog",), ("car",)),
        "2/size": ("size", ("A RED car and a small dog",), ("small",)),
    }
    assert by_id["1/color"].facts == {"image_id": "1", "license": OPEN}
    text = "\n".join(lines)
    assert f"1 images skipped: {FORBIDDEN}" in text
    assert f"2 images skipped: {UNKNOWN}" in text
    assert f"1 images skipped: {NO_KEYWORD}" in text
    assert "5 new items; total per concept: object 2, color 2, size 1" in text


def test_images_of_any_license_on_request(project, tmp_path):
    assert add(project, write(tmp_path / "set", ROWS), any_license=True)[0] == 8
    assert items(project)["3/object"].facts["license"] == CLOSED


@pytest.mark.parametrize("card, number", [("cc-by-4.0", 1), ("cc-by-nd-4.0", 0), ("", 0)])
def test_without_a_column_the_license_of_the_card_counts(project, tmp_path, card, number):
    source = write(tmp_path / "set", [{"image_id": 1, "caption": "a red wall"}], card)
    if number:
        assert add(project, source)[0] == number
        assert items(project)["1/color"].facts["license"] == card
    else:
        with pytest.raises(ValueError, match=r"no image.*--any_license"):
            add(project, source)


def test_the_order_depends_on_the_seed_and_not_on_that_of_the_rows(tmp_path):
    rows = [{"image_id": number, "caption": "a red wall", "license": OPEN} for number in range(30)]
    for number, row in enumerate(rows):
        row["image"] = {"bytes": encode(picture(number)), "path": None}
    orders = []
    for number, (some, seed) in enumerate([(rows, 0), (rows[::-1], 0), (rows, 1)]):
        project = Project(tmp_path / f"project{number}")
        add(project, write(tmp_path / f"set{number}", some), seed=seed)
        orders.append(list(items(project)))
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) and orders[0] != sorted(orders[0])


def test_a_second_call_adds_nothing_and_a_second_source_comes_behind(project, tmp_path):
    source = write(tmp_path / "set", ROWS)
    add(project, source)
    before = list(items(project).values())
    number, lines = add(project, source, seed=5)
    assert number == 0 and list(items(project).values()) == before and "0 new items" in lines[-1]
    row = {"image_id": "x", "caption": "a blue wall", "license": OPEN}
    assert add(project, write(tmp_path / "second", [row]))[0] == 1
    assert list(items(project))[-1] == "x/color"


def test_an_id_of_another_image_is_left_out_and_counted(project, tmp_path):
    add(project, write(tmp_path / "set", ROWS))
    before = items(project)
    rows = [{"image_id": 1, "caption": "a blue wall", "license": OPEN}]
    number, lines = add(project, write(tmp_path / "second", rows))
    assert number == 0 and items(project) == before
    assert any(f"1 images skipped: {OTHER_ITEM}" in line for line in lines)


@pytest.mark.parametrize("captions", ["a red wall", ["a red wall", "a wall"]])
def test_images_without_ids_are_known_by_their_content(project, tmp_path, captions):
    """Two sources without ids would both name their first image 0."""
    rows = [{"caption": captions, "license": OPEN}] * 2
    assert add(project, write(tmp_path / "set", rows))[0] == 2
    assert add(project, write(tmp_path / "set", rows))[0] == 0
    other = [{"caption": captions, "license": OPEN, "image": {"bytes": encode(picture(9)), "path": None}}]
    assert add(project, write(tmp_path / "other", other))[0] == 1
    for name, item in items(project).items():
        assert name == f"{Path(item.image).stem}/color" and item.facts["image_id"] == Path(item.image).stem


def test_rows_of_one_image_are_one_item(project, tmp_path):
    image = {"bytes": encode(picture(0)), "path": None}
    rows = [{"image_id": 1, "caption": text, "license": OPEN, "image": image} for text in ("a red wall", "red", "red")]
    assert add(project, write(tmp_path / "set", rows))[0] == 1
    assert items(project)["1/color"].captions == ("a red wall", "red")


def test_other_columns_are_facts_and_local_paths_are_not_kept(project, tmp_path):
    row = {"image_id": 1, "caption": "red", "license": OPEN, "source": "flickr", "url": "https://a.b/c/d.jpg"}
    row |= {"width": 20, "share": 0.5, "file": "/home/somebody/private/a.jpg", "tags": ["a"], "broken": float("nan")}
    add(project, write(tmp_path / "set", [row]))
    facts = dict(items(project)["1/color"].facts)
    assert facts.pop("file") == "LOCAL/a.jpg"
    assert facts == {
        **{"image_id": "1", "license": OPEN, "source": "flickr"},
        **{"url": "https://a.b/c/d.jpg", "width": 20, "share": 0.5},
    }
    other = Project(tmp_path / "other")
    add(other, tmp_path / "set", columns="source")
    assert {*items(other)["1/color"].facts} == {"image_id", "license", "source"}


def rotated_picture() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter
    return encode(picture(1), exif=exif)


@pytest.mark.parametrize(
    "content, size, is_copied",
    [
        (encode(picture(1)), (20, 14), True),
        (encode(picture(1, "L")), (20, 14), True),
        (encode(picture(1, "CMYK")), (20, 14), True),
        (encode(picture(1, "P"), "PNG"), (20, 14), True),
        (encode(picture(1, "RGBA"), "PNG"), (20, 14), True),
        (encode(Image.fromarray(np.arange(280, dtype=np.uint16).reshape(14, 20) * 200), "PNG"), (20, 14), True),
        (rotated_picture(), (14, 20), True),
        (encode(picture(1, size=(3000, 2)), "PNG"), (3000, 2), True),
        (encode(picture(1, size=(1, 1)), "PNG"), (1, 1), True),
        (encode(picture(1), "WEBP", lossless=True), (20, 14), False),
        (encode(picture(1), "BMP"), (20, 14), False),
    ],
)
def test_images_are_copied_to_the_bit_and_read_as_rgb(project, tmp_path, content, size, is_copied):
    row = {"image_id": 1, "caption": "red", "license": OPEN, "image": {"bytes": content, "path": None}}
    add(project, write(tmp_path / "set", [row]))
    file = items(project)["1/color"].image
    image = project.read(file)
    assert (image.mode, image.size) == ("RGB", size)
    if is_copied:
        assert (project.folder / IMAGES / file).read_bytes() == content
    else:
        assert file.endswith(".png") and (np.asarray(image) == np.asarray(picture(1))).all()


@pytest.mark.parametrize("image", [None, {"bytes": b"no image", "path": None}, {"bytes": b"", "path": None}])
def test_an_image_that_cannot_be_read_is_left_out(project, tmp_path, image):
    rows = [
        {"image_id": 1, "caption": "red", "license": OPEN},
        {"image_id": 2, "caption": "red", "license": OPEN, "image": image},
    ]
    number, lines = add(project, write(tmp_path / "set", rows))
    assert number == 1 and any(f"1 images skipped: {UNREADABLE}" in line for line in lines)


def lines_file(folder: Path, image: str) -> Path:
    folder.mkdir(exist_ok=True)
    row = {"image": image, "image_id": 1, "caption": "red", "license": OPEN}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    return folder / "rows.jsonl"


def test_files_outside_the_folder_of_the_source_are_refused(project, tmp_path):
    (tmp_path / "private.jpg").write_bytes(encode(picture(1)))
    source = lines_file(tmp_path / "set", str(tmp_path / "private.jpg"))
    with pytest.raises(ValueError, match=r"outside.*--allow_outside_files"):
        add(project, source)
    assert not items(project)
    assert add(project, source, allow_outside_files=True)[0] == 1
    assert (project.folder / IMAGES / items(project)["1/color"].image).read_bytes() == encode(picture(1))


def test_urls_are_not_fetched_unless_asked_for(project, tmp_path):
    with pytest.raises(ValueError, match="no image"):
        add(project, lines_file(tmp_path / "set", "http://127.0.0.1:9/a.jpg"))


def test_options_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ValueError, match="concepts: found 'location'.*object, color, size"):
        CandidateOptions(source="x", concepts=("location",))
    with pytest.raises(ValueError, match="concepts: found '', expected"):
        CandidateOptions(source="x", concepts=())


@pytest.mark.skipif(REAL is None, reason="HFCOMP_REAL_DATA is not set")
def test_real_photographs(project):
    rows = [json.loads(line) for line in (Path(REAL) / "coco_open_256.jsonl").read_text().splitlines()]
    source = Path(REAL) / "coco_open_256.jsonl"
    number, _ = add(project, source, column_names="caption=captions", limit=120)
    of_row = {str(row["image_id"]): row for row in rows}
    by_id = items(project)
    assert number == len(by_id) > 150
    for item in by_id.values():
        row = of_row[item.facts["image_id"]]
        assert {*item.captions} <= {*row["captions"]} and item.facts["license"] == row["license"]
        assert (project.folder / IMAGES / item.image).read_bytes() == (Path(REAL) / row["image"]).read_bytes()
        for caption, keyword in zip(item.captions, item.keywords, strict=True):
            assert keyword in [match.keyword for match in concept_keywords(caption, item.concept)]
            assert replacements(item.concept, keyword)
    assert {item.concept for item in by_id.values()} == {"object", "color", "size"}
    assert add(project, source, column_names="caption=captions", limit=120)[0] == 0
