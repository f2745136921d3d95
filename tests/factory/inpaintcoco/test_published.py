"""The published set, copied in its layout: read, flagged and built (about 5 s)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from datasets import load_dataset
from PIL import Image

from hfcomp.data.annotations.masks import mask_image
from hfcomp.data.built_sets.verification import verify_set
from hfcomp.data.loading import load_training_set, undecoded
from hfcomp.factory.build import build_set
from hfcomp.factory.inpaintcoco.options import InpaintCocoOptions
from tests.factory import builds
from tests.factory.inpaintcoco import sets

WHOLE = np.ones((sets.SIZE[1], sets.SIZE[0]), dtype=bool)
BAD = {
    1: ("empty caption", {"inpaint_caption": " \n"}),
    2: ("empty caption", {"inpaint_caption": None}),
    3: ("captions are the same", {"inpaint_caption": "a red dog  number 3"}),
    4: ("images differ in size", {"inpaint_image": sets.photo(5, (40, 48))}),
    5: ("mask and image differ in size", {"mask": mask_image(np.eye(8, dtype=bool))}),
    6: ("mask is empty", {"mask": mask_image(~WHOLE)}),
    7: ("mask covers the whole image", {"mask": mask_image(WHOLE)}),
    8: ("nothing is changed in the mask", {"inpaint_image": sets.photo(8)}),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    rows = [sets.row(number, **BAD.get(number, ("", {}))[1]) for number in range(10)]
    rows.append(sets.row(10, mask=None))
    forbidden = sets.row(11)
    forbidden["coco_details"]["image_license"] = "Attribution-NoDerivs License"
    return sets.publish(tmp_path_factory.mktemp("hub") / "InpaintCOCO", [*rows, forbidden])


def build(source: Path, folder: Path, **options) -> Path:
    return build_set(InpaintCocoOptions(source=str(source), output=folder, **options), log=lambda line: None).folder


def test_bad_rows_are_flagged_and_kept_and_unreadable_ones_set_aside(source, tmp_path):
    folder = build(source, tmp_path / "out", shard_size=4)
    verify_set(folder, log=lambda line: None)
    rows = undecoded(load_training_set(str(folder), split="test"))
    assert rows["flags"][:] == [[BAD[row][0]] if row in BAD else [] for row in range(10)]
    outside = rows["changed_outside"][:]
    assert [row for row, share in enumerate(outside) if share is None] == [4, 5, 7]
    assert outside[8] == 0 and all(share > 0.99 for row, share in enumerate(outside) if row in (0, 1, 2, 3, 9))
    assert rows["worker"][:2] == ["annotator 1", "annotator 2"]
    assert rows["license"][:] == [sets.ALLOWED] * 10 and rows["coco_details"][0]["id"] == 139
    original = undecoded(load_dataset(str(source), split="test"))
    for name in ("coco_image", "inpaint_image", "mask"):
        assert [cell["bytes"] for cell in rows[name]] == [cell["bytes"] for cell in original[name][:10]]
    aside = [json.loads(line) for line in (folder / "set_aside.jsonl").read_text().splitlines()]
    assert [(record["row"], record["reason"]) for record in aside] == [
        (10, "no image"),
        (11, "license forbids adaptation"),
    ]
    flagged = Counter(reason for reason, _ in BAD.values()) | {"pixels differ outside the mask": 6}
    counts = json.loads((folder / "manifest.json").read_text())["counts"]
    assert {name: number for name, number in counts.items() if name.startswith("flag: ")} == {
        f"flag: {name}": number for name, number in flagged.items()
    }


def test_the_card_counts_flags_and_names_nobody(source, tmp_path):
    folder = build(source, tmp_path / "out")
    card = (folder / "README.md").read_text()
    assert "| empty caption | 2 |" in card and "| pixels differ outside the mask | 6 |" in card
    assert "| no image | 1 |" in card and "hfcomp build inpaintcoco --source LOCAL/InpaintCOCO --output DIR" in card
    assert 'load_dataset("<this dataset\'s id or folder>", split="test")' in card
    assert not any(b"Person" in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_the_folder_loads_and_streams(source, tmp_path):
    folder = build(source, tmp_path / "out", shard_size=3)
    rows = load_dataset(str(folder), split="test")
    assert len(rows) == 10 and rows[0]["mask"].size == sets.SIZE
    streamed = list(load_dataset(str(folder), split="test", streaming=True))
    assert [row["coco_caption"] for row in streamed] == rows["coco_caption"][:]


def test_an_import_can_be_imported_again_with_equal_flags(source, tmp_path):
    first = build(source, tmp_path / "first")
    again = build(first, tmp_path / "again")
    columns = [undecoded(load_training_set(str(path), split="test")) for path in (first, again)]
    for name in ("flags", "changed_outside", "worker", "source", "license"):
        assert columns[0][name][:] == columns[1][name][:]


def test_the_same_source_gives_the_same_bytes_and_resumes(source, tmp_path):
    hashes = [builds.hashes(build(source, tmp_path / name, shard_size=3)) for name in ("a", "b")]
    assert hashes[0] == hashes[1]
    (tmp_path / "b/data/test-00001-of-00004.parquet").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"test-00001-of-00004.parquet .*damaged"):
        verify_set(tmp_path / "b", log=lambda line: None)
    assert builds.hashes(build(source, tmp_path / "b", shard_size=3)) == hashes[0]


def test_options_choose_rows_or_say_what_is_wrong(source, tmp_path):
    folder = build(source, tmp_path / "some", concepts=("size",), any_license=True, limit=3)
    assert set(load_training_set(str(folder), split="test")["concept"]) == {"size"}
    assert "--concepts size --any_license" in (folder / "README.md").read_text()
    wrong = [
        ({"concepts": ("shape",)}, "--concepts: found 'shape'; .*InpaintCOCO has color, object, size"),
        ({"quality": "very good"}, "--quality .*has no annotations.sqlite"),
        ({"split": "train"}, "train"),
    ]
    for options, said in wrong:
        with pytest.raises(ValueError, match=said):
            build(source, tmp_path / "wrong", **options)


def test_a_set_in_another_layout_is_refused(tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    Image.new("RGB", (4, 4)).save(folder / "0.png")
    (folder / "metadata.jsonl").write_text(json.dumps({"file_name": "0.png", "concept": "color"}) + "\n")
    with pytest.raises(ValueError, match="inpaintcoco .*'coco_caption', 'coco_image'"):
        build(folder, tmp_path / "out", split="train")
