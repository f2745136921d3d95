"""Annotation projects as datasets: rows, checks, counts, and kills (about 5 s; kills are slow)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from datasets import load_dataset

from hfcomp.data.annotations.masks import FEATHER, changed_outside, compose, mask_image, read_mask
from hfcomp.data.annotations.project import Project
from hfcomp.data.built_sets.verification import verify_set
from hfcomp.data.loading import load_training_set, undecoded
from hfcomp.factory.build import build_set
from hfcomp.factory.inpaintcoco.options import InpaintCocoOptions
from tests.factory import builds
from tests.factory.inpaintcoco import sets
from tests.factory.kills import survive_kills

WHOLE = np.ones((sets.SIZE[1], sets.SIZE[0]), dtype=bool)


def build(source: Path, folder: Path, **options) -> Path:
    return build_set(InpaintCocoOptions(source=str(source), output=folder, **options), log=lambda line: None).folder


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    return sets.project(tmp_path_factory.mktemp("annotated") / "project")


def test_rows_are_the_edits_with_the_bytes_of_the_project(project, tmp_path):
    folder = build(project, tmp_path / "out", shard_size=4)
    verify_set(folder, log=lambda line: None)
    rows = undecoded(load_training_set(str(folder), split="test"))
    assert len(rows) == 6 and rows["concept"][:3] == ["object", "color", "size"]
    assert rows["coco_caption"][1] == "A red dog number 1." and rows["inpaint_caption"][1] == "A blue dog number 1."
    assert rows["license"][:] == [sets.ALLOWED] * 6 and rows["source"][:] == ["coco"] * 6
    details = rows["coco_details"][3]
    width, height = sets.SIZE
    assert details == {
        "captions": ["A red dog number 3."],
        "height": height,
        "id": "140",
        "image_license": sets.ALLOWED,
        "width": width,
    }
    assert rows["inpaint_details"][2] == {
        "prompt": "a blue dog",
        "seed": 9,
        "mask_prompt": "red dog",
        "threshold": 0.4,
        "enlarge": [2, 3],
        "is_corrected": False,
        "quality": "very good",
        "reviewer": "annotator 2",
        "reviewed_quality": "okay",
    }
    assert rows["coco_image"][0]["bytes"] == sets.encode(sets.photo(0), "JPEG")
    assert all(rows[name][0]["bytes"].startswith(b"\x89PNG") for name in ("inpaint_image", "mask"))


def test_the_folder_loads_streams_and_keeps_what_is_outside_the_mask(project, tmp_path):
    folder = build(project, tmp_path / "out")
    rows = load_dataset(str(folder), split="test")
    assert len(list(load_dataset(str(folder), split="test", streaming=True))) == len(rows) == 6
    for row in rows:
        assert changed_outside(row["coco_image"], row["inpaint_image"], read_mask(row["mask"])) == 0


def test_nobody_is_named_and_people_have_the_same_number_in_every_set(project, tmp_path):
    folder = build(project, tmp_path / "out")
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not any(name in path.read_bytes() for path in files for name in (b"Ann Meyer", b"Bo Larsen"))
    rows = load_training_set(str(folder), split="test")
    assert rows["worker"][:3] == ["annotator 1", "annotator 2", "annotator 1"]
    some = load_training_set(str(build(project, tmp_path / "some", concepts=("color",))), split="test")
    assert some["worker"][:] == ["annotator 2", "annotator 1"]


def test_the_card_says_what_was_decided_and_by_how_many_people(tmp_path):
    folder = sets.project(tmp_path / "project")
    made = Project(folder)
    for number in (6, 7, 8):
        made.decisions.add_items([sets.item(made, number)])
    first, second, third = (f"{number}/{sets.CONCEPTS[number % 3]}" for number in (6, 7, 8))
    made.decisions.skip("Cy", first, "nothing to replace, says Bo Larsen")
    made.decisions.skip("Cy", second, "by mistake")
    made.decisions.undo("Cy")
    made.decisions.submit("Cy", second, sets.edit(made, made.decisions.item(second), 7))
    made.decisions.send_back("Ann Meyer", second, "artifacts")
    for _ in range(2):
        made.add_model("inpainter", "a/pipeline (sha256:1), 50 steps")
    made.decisions.close()
    card = (build(folder, tmp_path / "out") / "README.md").read_text()
    assert "| open | 2 |" in card and "| accepted | 6 |" in card and "| skipped | 1 |" in card
    assert "| nothing to replace, says annotator 1 | 1 |" in card and "by mistake" not in card
    assert "| artifacts | 1 |" in card and "| annotator 1 | 3 | 3 |" in card
    assert "| very good | 4 | 2 |" in card and "| equal ratings, in percent | 66.7 [" in card
    assert "| color, very good | 2 |" in card and "| size, okay | 2 |" in card
    assert card.count("| inpainter | a/pipeline (sha256:1), 50 steps |") == 1
    assert "| threshold 0.40 | 6 |" in card and "| corrected or drawn by hand | 3 |" in card


def test_what_no_accepted_item_may_be_is_set_aside_with_its_reason(tmp_path):
    folder = tmp_path / "project"
    made = Project(folder)
    edges = sets.mask()
    edges[9 - FEATHER, 12] = True  # a pixel beyond the border of the mask that is kept
    outside = compose(sets.photo(2), sets.photo(99), edges, feather=0)
    bad = [
        ("captions are the same", {"caption": "A RED dog number 0"}),
        ("images differ in size", {"image": made.save(sets.photo(50, (40, 48)))}),
        ("pixels differ outside the mask", {"image": made.save(outside)}),
        ("mask is empty", {"mask": made.save(mask_image(~WHOLE))}),
        ("mask covers the whole image", {"mask": made.save(mask_image(WHOLE))}),
        ("nothing is changed in the mask", {"image": ""}),
        ("image cannot be decoded", {"mask": "ab/missing.png"}),
    ]
    for number, (_, changes) in enumerate(bad):
        item = sets.item(made, number, image=made.save(sets.photo(number)))
        made.decisions.add_items([item])
        changes = {"image": item.image} if changes == {"image": ""} else changes
        made.decisions.submit("a", item.id, sets.edit(made, item, number, **changes))
        made.decisions.accept("b", item.id, "okay")
    good = sets.item(made, 20, facts={"image_id": "7", "license": "Attribution-NoDerivs License"})
    made.decisions.add_items([good])
    made.decisions.submit("a", good.id, sets.edit(made, good, 20))
    made.decisions.accept("b", good.id, "okay")
    made.decisions.close()
    (folder / "images/ab").mkdir(exist_ok=True)
    (folder / "images/ab/missing.png").write_bytes(b"no image")
    output = build(folder, tmp_path / "out", any_license=True)
    rows = [json.loads(line) for line in (output / "set_aside.jsonl").read_text().splitlines()]
    expected = [reason for reason, _ in bad]
    expected[-1] = "image file cannot be read"
    assert [row["reason"] for row in rows] == expected
    assert load_training_set(str(output), split="test")["coco_details"][0]["id"] == "7"
    output = build(folder, tmp_path / "strict")
    reasons = json.loads((output / "manifest.json").read_text())["set_aside"]
    assert reasons["license forbids adaptation"] == 1 and sum(reasons.values()) == 8


def test_quality_is_that_of_both_and_concepts_are_chosen(project, tmp_path):
    rows = load_training_set(str(build(project, tmp_path / "good", quality="very good")), split="test")
    assert set(rows["concept"]) == {"object", "color"} and len(rows) == 4
    with pytest.raises(ValueError, match="--concepts: found 'shape'.* color, object"):
        build(project, tmp_path / "out", concepts=("shape",))
    with pytest.raises(ValueError, match="no accepted .*: 0 open"):
        build(project, tmp_path / "out", quality="okay", concepts=("color",))
    with pytest.raises(ValueError, match="--config .*annotation project"):
        build(project, tmp_path / "out", config="x")


def test_the_same_project_gives_the_same_bytes_and_a_changed_one_is_noticed(tmp_path):
    folder = sets.project(tmp_path / "project")
    assert builds.hashes(build(folder, tmp_path / "a")) == builds.hashes(build(folder, tmp_path / "b"))
    made = Project(folder)
    item = sets.item(made, 30)
    made.decisions.add_items([item])
    made.decisions.submit("a", item.id, sets.edit(made, item, 30))
    made.decisions.accept("b", item.id, "okay")
    made.decisions.close()
    with pytest.raises(ValueError, match="source.rows: 6 -> 7"):
        build(folder, tmp_path / "a")


@pytest.mark.slow
def test_kills_at_random_moments_change_no_byte(tmp_path, context):
    """20 kills of builds of one row a shard."""
    source = sets.project(tmp_path / "project", 12)

    def start(folder: Path):
        ready, begun = context.Pipe(duplex=False)
        process = context.Process(target=_build_slowly, args=(source, folder, begun))
        process.start()
        ready.recv()
        return process

    finished = survive_kills(start, tmp_path / "builds", kills=20)
    assert len({*finished}) > 2  # kills on a busy machine come late


def _build_slowly(source: Path, folder: Path, begun) -> None:
    begun.send(None)
    build(source, folder, shard_size=1)
