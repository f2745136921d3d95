"""WebDataset archives: whatever members are called, what is there is used, and what is missing is named."""

from __future__ import annotations

import io
import json
import logging
import subprocess
from functools import lru_cache

import pytest

from hfcomp.data import load_training_set
from hfcomp.data.images import decode_image
from hfcomp.data.loading import TrainingRows, contract_rows, load_training_stream
from hfcomp.data.sources import load_source
from hfcomp.trainers.info_nce import InfoNCEConfig, InfoNCETrainer
from tests import tiny
from tests.evaluation.webdatasets import write_tar

NAMES = {"image": "jpg", "caption": "txt"}


@lru_cache
def image(index):
    stored = io.BytesIO()
    tiny.image(index).save(stored, "PNG")
    return stored.getvalue()


def members(number=12, *, images=None, texts=None, name="{:03}"):
    """Of samples with an image and a text, by default `.jpg` and `.txt`; None leaves one out."""
    files = {}
    for index in range(number):
        key = name.format(index)
        if (ending := (images or {}).get(index, "jpg")) is not None:
            files[f"{key}.{ending}"] = image(index)
        if (ending := (texts or {}).get(index, "txt")) is not None:
            files[f"{key}.{ending}"] = f"ball {index}".encode()
    return files


def corner_pixels(rows):
    return [decode_image(row["image"]).getpixel((0, 0)) for row in TrainingRows(rows, ["image"])]


def check(rows, number=12):
    assert rows["caption"][:] == [f"ball {index}" for index in range(number)]
    assert corner_pixels(rows) == [tiny.image(index).convert("RGB").getpixel((0, 0)) for index in range(number)]


ARCHIVES = {
    "another ending in sample 7": members(images={7: "png"}),
    "another ending in sample 1": members(images={1: "webp"}),
    "three endings": members(images={0: "jpeg", 5: "png", 6: "gif"}),
    "capitals": members(images=dict.fromkeys(range(12), "JPG"), texts=dict.fromkeys(range(12), "TXT")),
    "capitals in some": members(images={3: "JPG", 8: "Jpeg"}, texts={2: "TXT", 9: "text"}),
    "folders": members(name="./a.b/{:03}"),
    "dots in names": members(name="photo.{}"),
    "dots in one name": {**members(11), "z.final.jpg": image(11), "z.final.txt": b"ball 11"},
    "dots with equal parts": members(name="{}.5"),
    "versions": {
        f"{index // 2}.{index % 2 + index // 4}.{ending}": content
        for index in range(12)
        for ending, content in (("jpg", image(index)), ("txt", f"ball {index}".encode()))
    },
    "others beside": {"README": b"x", ".hidden.txt": b"x", **members()},
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_every_sample_has_its_image_and_caption(name, tmp_path):
    write_tar(tmp_path / "set.tar", ARCHIVES[name])
    check(load_training_set(str(tmp_path / "set.tar"), column_names=NAMES))


@pytest.mark.parametrize("image_name", ["jpg", "png", "jpg;png;jpeg;webp", "png;webp", "JPG", "jpeg"])
def test_a_column_is_named_by_any_of_its_spellings(image_name, tmp_path):
    write_tar(tmp_path / "set.tar", members(images={7: "png"}))
    names = {"image": image_name, "caption": "txt;text"}
    check(load_training_set(str(tmp_path / "set.tar"), column_names=names))


def test_images_of_several_columns_are_the_first_that_a_row_has(tmp_path):
    given = members(images={7: "png"}) | {"000.webp": image(5)}
    write_tar(tmp_path / "set.tar", dict(sorted(given.items())))
    rows = load_source(str(tmp_path / "set.tar"))
    assert {"jpg", "png", "webp"} <= {*rows.column_names}
    check(load_training_set(str(tmp_path / "set.tar"), column_names={"image": "jpg;png;webp", "caption": "txt"}))


def test_endings_with_dots_are_columns(tmp_path):
    given = {f"{key}.{end}": image(key) for key in range(4) for end in ("left.jpg", "right.jpg", "seg.png")}
    write_tar(tmp_path / "set.tar", given)
    rows = load_source(str(tmp_path / "set.tar"))
    assert {"left.jpg", "right.jpg", "seg.png"} <= {*rows.column_names} and rows["__key__"][:] == ["0", "1", "2", "3"]
    del given["2.left.jpg"]
    write_tar(tmp_path / "set.tar", given)
    assert [cell is None for cell in load_source(str(tmp_path / "set.tar"))["left.jpg"]] == [False, False, True, False]


def test_captions_of_json_of_late_samples_are_read(tmp_path):
    given = members()
    given |= {f"{index:03}.json": json.dumps({"text": f"json {index}"}).encode() for index in (8, 9)}
    write_tar(tmp_path / "set.tar", dict(sorted(given.items())))
    rows = load_source(str(tmp_path / "set.tar"))
    assert [cell and cell["text"] for cell in rows["json"][7:10]] == [None, "json 8", "json 9"]


def config(tmp_path):
    return InfoNCEConfig(output_dir=str(tmp_path / "run"), use_cpu=True, report_to="none")


@pytest.mark.follows("hfcomp/data/row_checks.py", "or remove such rows; in Python: dataset.filter(lambda row:")
@pytest.mark.parametrize(
    ("given", "column", "message"),
    [
        (members(6, texts={1: None}), "caption", r"'caption', row 1, .*'001' .*\S+/set.tar, .*image: found None"),
        (
            members(6, images={1: None, 4: None}),
            "image",
            r"'image', row 1, .*'001' .*\S+/set.tar, .*caption: found no image, .* 2 of 6 rows",
        ),
    ],
)
def test_a_sample_without_a_member_is_named_before_anything_is_trained(given, column, message, tmp_path):
    write_tar(tmp_path / "set.tar", given)
    rows = load_training_set(str(tmp_path / "set.tar"), column_names=NAMES)
    with pytest.raises(ValueError, match=message) as error:
        InfoNCETrainer.check_rows(rows, config(tmp_path))
    advised = str(error.value).partition("in Python: ")[2].rstrip(".")
    kept = eval(advised, {"dataset": rows})
    assert InfoNCETrainer.check_rows(kept, config(tmp_path)) is None and len(kept) in (4, 5)


@pytest.mark.follows("hfcomp/data/formats/archives.py", "order of their names, for example with `tar --sort=name`")
def test_members_that_are_apart_are_named(tmp_path):
    given = members(3)
    write_tar(tmp_path / "set.tar", {name: given[name] for name in sorted(given, key=lambda name: name[-3:])})
    with pytest.raises(ValueError, match=r"set.tar: .*members .*'000'"):
        load_source(str(tmp_path / "set.tar"))
    (tmp_path / "files").mkdir()
    for name, content in given.items():
        (tmp_path / "files" / name).write_bytes(content)
    subprocess.run(["tar", "--sort=name", "-cf", "../set.tar", "."], check=True, cwd=tmp_path / "files")
    check(load_training_set(str(tmp_path / "set.tar"), column_names=NAMES), 3)


@pytest.mark.follows("hfcomp/data/formats/archives.py", "twice. Rename or remove one.")
def test_one_name_in_two_cases_is_named(tmp_path):
    write_tar(tmp_path / "set.tar", {**members(1), "000.JPG": image(1)})
    with pytest.raises(ValueError, match=r"set.tar: .*'000' .*'jpg' twice"):
        load_source(str(tmp_path / "set.tar"))
    write_tar(tmp_path / "set.tar", members(1))
    check(load_training_set(str(tmp_path / "set.tar"), column_names=NAMES), 1)


@pytest.mark.follows("hfcomp/data/formats/own_builders.py", "Correct it and repack the archive.")
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("002.json", b'{"a": ', "002.json .*json: Expecting value"),
        ("002.json", b'{"a": "\\ud83d"}', "002.json .*json: .*Unicode"),
        ("002.txt", b"caf\xe9", "002.txt .*txt: 'utf-8'"),
        ("002.cls", b"dog", "002.cls .*cls: invalid"),
        ("002.pth", b"dog", "002.pth .*pth: "),
        ("002.npy", b"dog", "002.npy .*npy: "),
    ],
)
def test_a_damaged_member_is_named_with_its_archive(name, content, message, tmp_path):
    given = members(4)
    write_tar(tmp_path / "set.tar", dict(sorted({**given, name: content}.items())))
    with pytest.raises(ValueError, match=rf"^\S+/set.tar: the member {message}[^\n]*$"):
        load_source(str(tmp_path / "set.tar"))
    write_tar(tmp_path / "set.tar", given)
    check(load_training_set(str(tmp_path / "set.tar"), column_names=NAMES), 4)


def test_a_damaged_header_ends_no_archive_early(tmp_path):
    write_tar(tmp_path / "set.tar", members())
    content = bytearray((tmp_path / "set.tar").read_bytes())
    place = content.index(b"006.txt")
    content[place : place + 7] = b"\xff" * 7
    (tmp_path / "set.tar").write_bytes(content)
    with pytest.raises(ValueError, match=r"set.tar .*not a complete"):
        load_source(str(tmp_path / "set.tar"))


@pytest.mark.follows("hfcomp/data/formats/own_builders.py", "has no samples: expected members such as 000.jpg")
def test_an_archive_without_samples_is_named(tmp_path):
    write_tar(tmp_path / "set.tar", {"README": b"x"})
    with pytest.raises(ValueError, match=r"set.tar .*no samples"):
        load_source(str(tmp_path / "set.tar"))
    write_tar(tmp_path / "set.tar", {"README": b"x", "000.jpg": image(0), "000.txt": b"ball 0"})
    check(load_training_set(str(tmp_path / "set.tar"), column_names=NAMES), 1)


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_stream_has_the_same_rows(name, tmp_path):
    write_tar(tmp_path / "set/0.tar", ARCHIVES[name])
    rows = contract_rows(load_training_stream(str(tmp_path / "set")), str(tmp_path / "set"), NAMES)
    assert [row["caption"] for row in rows] == [f"ball {index}" for index in range(12)]
    assert all(row["image"]["bytes"] for row in rows)


@pytest.mark.follows("hfcomp/data/formats/own_builders.py", "Load the archive without streaming, which keeps both.")
def test_a_stream_says_what_it_leaves_out(tmp_path, caplog):
    write_tar(tmp_path / "set/0.tar", members(300) | {"299.cls": b"1", "299.text": b"other"})
    rows = load_training_stream(str(tmp_path / "set"))
    with caplog.at_level(logging.WARNING), pytest.raises(ValueError, match="two .*'txt'"):
        list(rows)
    assert "'299' has a member 'cls'" in caplog.text
    whole = load_source(str(tmp_path / "set"))
    assert whole["cls"][299] == 1 and whole["text"][299] == "other"


@pytest.mark.follows("hfcomp/data/row_checks.py", "Complete the sample, or remove it from the archive.")
@pytest.mark.parametrize("missing", ["jpg", "txt"])
def test_a_stream_names_a_sample_without_a_member_too(missing, tmp_path):
    given = members(6)
    write_tar(tmp_path / "set/0.tar", {name: given[name] for name in given if name != f"001.{missing}"})

    def captions():
        rows = contract_rows(load_training_stream(str(tmp_path / "set")), str(tmp_path / "set"), NAMES)
        return [row["caption"] for row in rows]

    column = {"jpg": "image", "txt": "caption"}[missing]
    with pytest.raises(ValueError, match=rf"'{column}' .*'001' .*\S+/0.tar"):
        captions()
    write_tar(tmp_path / "set/0.tar", given)
    assert len(captions()) == 6


def test_columns_that_a_card_states_are_filled_whatever_the_ending(tmp_path):
    write_tar(tmp_path / "set/0.tar", members(4, images={0: "png", 1: "png", 2: "webp"}))
    features = [{"name": "jpg", "dtype": "image"}, {"name": "txt", "dtype": "string"}]
    card = {"configs": [{"config_name": "default", "data_files": "*.tar"}], "dataset_info": {"features": features}}
    (tmp_path / "set/README.md").write_text(f"---\n{json.dumps(card)}\n---\n")
    check(load_training_set(str(tmp_path / "set"), column_names=NAMES), 4)
