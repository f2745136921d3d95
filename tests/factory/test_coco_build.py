"""Builds from a COCO folder: missing files are listed, and rows that may not be adapted are left out on request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp.data.built_sets.files import MANIFEST, SET_ASIDE_FILE
from hfcomp.factory.build import build_set
from hfcomp.factory.options import NegativeOptions
from tests.factory.builds import png

LICENSES = {1: "Attribution License", 2: "Attribution-NoDerivs License", 3: "Attribution License", 4: "", 5: None}


@pytest.fixture
def coco(tmp_path) -> Path:
    """Five photographs, the third of which was not downloaded."""
    folder = tmp_path / "coco"
    (folder / "train2017").mkdir(parents=True)
    (folder / "annotations").mkdir()
    licenses = [{"id": number, "name": name} for number, name in LICENSES.items() if name is not None]
    images = [{"id": number, "file_name": f"{number}.jpg", "license": number} for number in LICENSES]
    captions = [{"image_id": number, "caption": f"a red ball {number}"} for number in LICENSES]
    content = {"licenses": licenses, "images": images, "annotations": captions}
    (folder / "annotations/captions_train2017.json").write_text(json.dumps(content))
    for number in LICENSES:
        if number != 3:
            (folder / f"train2017/{number}.jpg").write_bytes(png(number))
    return folder


def build(coco: Path, **settings):
    """A build without further options, what was logged, and the rows that were set aside."""
    logged: list[str] = []
    options = NegativeOptions(source=str(coco), output=coco.parent / "out", **settings)
    built = build_set(options, log=logged.append)
    lines = (built.folder / SET_ASIDE_FILE).read_text().splitlines()
    return (
        built,
        logged,
        [(record["row"], record["reason"], record.get("detail")) for record in map(json.loads, lines)],
    )


def rows(built) -> list[dict]:
    from hfcomp.data.loading import load_training_set

    return load_training_set(str(built.folder)).to_list()


def test_a_coco_folder_is_built_without_further_options_and_missing_files_are_listed(coco):
    built, logged, set_aside = build(coco)
    records = rows(built)
    assert [(row["image_id"], row["license"], row["source"]) for row in records] == [
        ("1", "Attribution License", "COCO"),
        ("2", "Attribution-NoDerivs License", "COCO"),
        ("4", "", "COCO"),
        ("5", None, "COCO"),
    ]
    assert records[0]["caption"] == "a red ball 1" and records[0]["negative_captions"][0] != ""
    assert records[1]["image"]["bytes"] == png(2)
    assert set_aside == [(2, "image file cannot be read", "image '3.jpg', which does not exist")]
    assert any(line.startswith("1 of them are missing, such as ") and "3.jpg (row 2)" in line for line in logged)


def test_rows_that_may_not_be_adapted_are_left_out_with_their_license(coco):
    built, _, set_aside = build(coco, only_adaptable=True)
    assert [row["image_id"] for row in rows(built)] == ["1"]
    forbidden = "license forbids adaptation"
    assert set_aside == [
        (1, forbidden, "Attribution-NoDerivs License"),
        (2, "image file cannot be read", "image '3.jpg', which does not exist"),
        (3, "license unknown", None),
        (4, "license unknown", None),
    ]
    manifest = json.loads((built.folder / MANIFEST).read_text())
    assert manifest["set_aside"][forbidden] == 1 and "licenses" in str(manifest["plan"]["stages"])


def test_a_source_without_licenses_is_asked_for_them(coco):
    folder = coco / "train2017"
    lines = [{"file_name": f"{number}.jpg", "caption": "a red ball"} for number in LICENSES]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines if "3" not in str(line)))
    asked = "--only_adaptable .*'license'.* --column_names license=<"
    with pytest.raises(ValueError, match=asked):
        build(folder, only_adaptable=True)
    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n")
    built, _, set_aside = build(folder, only_adaptable=True, columns="image")
    assert len(rows(built)) == 4 and not set_aside


def test_licenses_are_kept_beside_the_columns_that_are_named(coco):
    built, _, _ = build(coco, only_adaptable=True, columns="image")
    assert [row["license"] for row in rows(built)] == ["Attribution License"]
    assert rows(built)[0]["image_id"] == "1"  # the source's, not the file's name
