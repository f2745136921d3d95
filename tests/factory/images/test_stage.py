"""Sets with negative images: the same for any shards, processes and kills; what is wrong is set aside."""

from __future__ import annotations

import io
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, load_dataset
from PIL import Image

from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.factory.images import stage
from hfcomp.factory.images.editor import Edit, ImageEditor
from hfcomp.factory.images.stage import NO_NEGATIVE_CAPTION, image_seed, image_stages, is_blank, is_unchanged
from hfcomp.factory.manifest import SET_ASIDE_FILE, UNFINISHED
from hfcomp.factory.sources import BAD_IMAGE, NO_IMAGE
from tests.factory import builds
from tests.factory.images.photographs import COLORS, SIZE, build, options, photograph, row, source

ROWS = 10


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return [row(number) for number in range(ROWS)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory, sdxl, rows) -> Path:
    """A build that nothing disturbed. Never write into this folder."""
    return build(tmp_path_factory.mktemp("whole") / "out", source(rows), sdxl).folder


def negative_images(folder: Path) -> dict[str, bytes]:
    """The stored bytes by caption."""
    made = load_dataset(str(folder), split="train").with_format("arrow")[:]
    return {record["caption"]: record["negative_image"]["bytes"] for record in made.to_pylist()}


def set_aside(folder: Path) -> dict[int, str]:
    lines = (folder / SET_ASIDE_FILE).read_text().splitlines()
    return {line["row"]: line["reason"] for line in map(json.loads, lines)}


def with_edits(monkeypatch, edit) -> None:
    """Instead of a pipeline's edits those of a function of image and prompt."""
    monkeypatch.setattr(
        ImageEditor,
        "edit",
        lambda self, images, prompts, seeds: [edit(*pair) for pair in zip(images, prompts, strict=True)],
    )


def test_every_row_gets_an_image_of_its_own(whole, rows):
    made = load_dataset(str(whole), split="train")
    assert len(made) == ROWS and not set_aside(whole)
    for given, record in zip(rows, made, strict=True):
        assert record["negative_image"].size == (SIZE, SIZE) and record["negative_image"].format == "JPEG"
        assert record["image"].size == (60, 48) and record["negative_captions"] == given["negative_captions"]
    assert len(set(negative_images(whole).values())) == ROWS


def test_shards_processes_order_and_company_change_no_image(whole, tmp_path, sdxl, rows, quick_workers):
    expected = negative_images(whole)
    for name, settings in {"one": {"rows_per_shard": 1}, "seven": {"rows_per_shard": 7}}.items():
        assert negative_images(build(tmp_path / name, source(rows), sdxl, **settings).folder) == expected
    shared = build(tmp_path / "shared", source(rows), sdxl, num_workers=2)
    assert builds.hashes(shared.folder) == builds.hashes(whole)
    few = build(tmp_path / "few", source(rows[7:2:-2]), sdxl)
    assert negative_images(few.folder) == {rows[n]["caption"]: expected[rows[n]["caption"]] for n in (7, 5, 3)}


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"image_strength": 1.0}, {"image_guidance": 5.0}, {"image_quality": 60}]
)
def test_settings_change_images(whole, tmp_path, sdxl, rows, change):
    other = negative_images(build(tmp_path / "out", source(rows[:2]), sdxl, **change).folder)
    assert all(other[caption] != negative_images(whole)[caption] for caption in other)


def build_in_process(folder: str, rows: list[dict], sdxl: str) -> None:
    build(Path(folder), source(rows), Path(sdxl), rows_per_shard=1)


def test_a_killed_build_ends_with_the_same_bytes(tmp_path, sdxl, rows, context):
    """Twice; at any moment of all steps: tests/factory/concretebatch/test_chain.py."""
    expected = builds.hashes(build(tmp_path / "whole", source(rows), sdxl, rows_per_shard=1).folder)
    for seconds in (0.0, 0.1):
        folder = tmp_path / str(seconds)
        process = context.Process(target=build_in_process, args=(str(folder), rows, str(sdxl)))
        process.start()
        while not list((folder / UNFINISHED).glob("0*.json")) and process.is_alive():
            time.sleep(0.01)
        time.sleep(seconds)
        process.kill()
        process.join()
        assert build(folder, source(rows), sdxl, rows_per_shard=1).kept >= 1
        assert builds.hashes(folder) == expected


def test_rows_that_cannot_be_edited_are_set_aside(tmp_path, sdxl, rows):
    given = [dict(record) for record in rows[:6]]
    given[0]["image"] = {"bytes": photograph(0)[:300], "path": "cut.jpg"}
    given[1]["image"] = {"bytes": b"<html>", "path": "page.jpg"}
    given[2]["image"] = None
    given[3]["negative_captions"] = []
    given[4]["negative_captions"] = [" "]
    done = build(tmp_path / "out", source(given), sdxl)
    reasons = [BAD_IMAGE, BAD_IMAGE, NO_IMAGE, NO_NEGATIVE_CAPTION, NO_NEGATIVE_CAPTION]
    assert set_aside(done.folder) == dict(enumerate(reasons))
    assert done.manifest["set_aside"] == {reason: reasons.count(reason) for reason in sorted(set(reasons))}
    assert done.manifest["rows"] == 1


def test_images_without_content_or_change_are_set_aside(tmp_path, sdxl, rows, monkeypatch):
    def edit(image, prompt):
        black, grey = Image.new("RGB", image.size), Image.new("RGB", image.size, (120, 121, 122))
        upside_down = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
        number = COLORS.index(prompt.split()[1])
        return Edit([black, grey, image, upside_down, black][number], number == 4)

    with_edits(monkeypatch, edit)
    done = build(tmp_path / "out", source(rows[:5]), sdxl)
    assert set_aside(done.folder) == {0: stage.BLANK, 1: stage.BLANK, 2: stage.UNCHANGED, 4: stage.SAFETY_CHECKER}
    assert done.manifest["rows"] == 1


def test_thresholds_are_distances_in_levels():
    grey = np.full((8, 8, 3), 100, np.uint8)
    dots = grey.copy()
    dots[::2, :, 1] += 10  # deviation 5 in one channel, and 10 / sqrt(6) = 4.08 from the grey image
    dotted, plain = Image.fromarray(dots), Image.fromarray(grey)
    assert is_blank(dotted, below=5.1) and not is_blank(dotted, below=4.9) and not is_blank(plain, below=0)
    assert is_unchanged(dotted, plain, below=4.1) and not is_unchanged(dotted, plain, below=4.0)
    assert not is_unchanged(plain, plain, below=0)


def test_an_image_that_prefers_the_original_caption_is_set_aside(tmp_path, sdxl, rows, clip):
    swapped = [
        {**record, "caption": record["negative_captions"][0], "negative_captions": [record["caption"]]}
        for record in rows
    ]
    rows = [*rows[:5], *swapped[5:]]  # a random model prefers one wording for all images
    done = build(tmp_path / "out", source(rows), sdxl, pair_model=str(clip), blank_below=0.0)
    unfiltered = negative_images(build(tmp_path / "all", source(rows), sdxl, blank_below=0.0).folder)
    embedder, wrong = Embedder(clip), set()
    for number, record in enumerate(rows):
        image = embedder.images([Image.open(io.BytesIO(unfiltered[record["caption"]]))])
        original, negative = embedder.texts([record["caption"], record["negative_captions"][0]]).vectors
        wrong |= {number} if (image @ negative).item() <= (image @ original).item() else set()
    assert 0 < len(wrong) < ROWS
    assert set_aside(done.folder) == dict.fromkeys(sorted(wrong), stage.WRONG_CAPTION)
    assert "pair_model" in done.manifest["plan"]["stages"]["1 negative images"]
    kept = negative_images(done.folder)
    assert kept == {caption: unfiltered[caption] for caption in kept}


def test_an_image_as_near_to_both_captions_is_set_aside(tmp_path, sdxl, rows, clip):
    same = [record | {"negative_captions": [record["caption"]]} for record in rows[:3]]
    done = build(tmp_path / "out", source(same), sdxl, pair_model=str(clip))
    assert done.manifest["set_aside"] == {stage.WRONG_CAPTION: 3}


def test_prompts_that_are_cut_are_counted(tmp_path, sdxl, rows):
    given = [rows[0], rows[1] | {"negative_captions": ["cat " * 200]}]
    done = build(tmp_path / "out", source(given), sdxl)
    assert done.manifest["counts"] == {"images: prompt longer than 77 tokens": 1}


def test_the_manifest_says_what_made_the_images_and_on_no_machine(whole, sdxl):
    plan = json.loads((whole / "manifest.json").read_text())["plan"]["stages"]["1 negative images"]
    assert plan["pipeline"].startswith(f"{Path('LOCAL')}/sdxl (sha256:") or plan["pipeline"].startswith(
        "sdxl (sha256:"
    )
    assert set(plan["versions"]) == {"diffusers", "torch", "transformers", "pillow"}
    assert plan | {"steps": 4, "strength": 0.75, "dtype": "float32", "seed": 0, "batch_size": 3} == plan
    assert "device" not in plan and str(sdxl.parent) not in json.dumps(plan)


def test_other_settings_do_not_resume(whole, sdxl, rows, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "out")
    with pytest.raises(ValueError, match=r"negative images\.strength: 0\.75 -> 0\.5"):
        build(folder, source(rows), sdxl, image_strength=0.5)


def test_workers_are_not_asked_for_a_missing_pipeline(tmp_path):
    with pytest.raises(ValueError, match="image_pipeline=.*no such"):
        image_stages(options(tmp_path / "missing" / "folder"))


def test_the_seed_is_of_the_row_s_content():
    image = {"bytes": photograph(0), "path": "a.jpg"}
    first = image_seed(image, "a cat", 0, "row")
    assert image_seed(image | {"path": "b.jpg"}, "a cat", 0, "row") == first
    others = [({"bytes": photograph(1), "path": "a.jpg"}, "a cat", 0), (image, "a dog", 0), (image, "a cat", 1)]
    assert first not in {image_seed(*arguments, "row") for arguments in others} and 0 <= first < 2**63


def test_a_set_without_the_stage_s_columns_is_refused(tmp_path, sdxl):
    with pytest.raises(ValueError, match="no column 'negative_captions'"):
        build(tmp_path / "out", Dataset.from_dict({"image": [None], "caption": ["a"]}), sdxl)
