"""HierarCaps in the authors' layouts (about 1 s)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks.papers.hierarcaps import FILE, HIERARCAPS, HIERARCAPS_LEVELS, rows
from hfcomp.evaluation.cells import decoded
from hfcomp.evaluation.engine import NO_IMAGE, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Folders
from hfcomp.statistics.summary import summarize
from tests.evaluation.benchmarks.oracle import Fake, constant, knowing, means, photo, random, run

IMAGES = 40


def captions(number: int) -> list[str]:
    return [
        f"thing {number}",
        f"big thing {number}",
        f"big thing {number}, red",
        f"A big thing {number}, red and old.",
    ]


LEVEL = {text: (number, level) for number in range(IMAGES) for level, text in enumerate(captions(number), start=1)}


def write(folder: Path, texts=captions) -> Path:
    folder.mkdir(exist_ok=True)
    url = "http://images.cocodataset.org/val2014/COCO_val2014_{:012}.jpg"
    lines = [f'{number},"{" => ".join(texts(number))}",{url.format(number)}' for number in range(IMAGES)]
    (folder / FILE).write_text("\n".join(["id,captions,image_url", *lines, ""]))
    return folder


def images(folder: Path, prefix: str = "") -> Path:
    folder.mkdir()
    for number in range(IMAGES):
        (folder / f"{prefix}{number:012}.jpg").write_bytes(photo(number))
    return folder


def axis_encoder(step: float) -> Fake:
    """An image's own texts lie on its axis, `step` apart; the empty text at 0."""

    def text(words: str) -> np.ndarray:
        number, level = LEVEL.get(words, (0, 0))
        away = level if step > 0 else 5 - level
        return np.eye(IMAGES)[number] * abs(step) * away * bool(words)

    return Fake(IMAGES, lambda number: np.eye(IMAGES)[number], text)


@pytest.fixture
def folder(tmp_path) -> Path:
    write(tmp_path)
    images(tmp_path / "test_imgs", "COCO_val2014_")
    return tmp_path


def test_scorers_against_chance(folder):
    perfect = run(HIERARCAPS, folder, axis_encoder(1.0))
    assert means(perfect) == {("all", name): 1.0 for name in ("precision", "recall", "rank correlation")}
    assert means(run(HIERARCAPS, folder, axis_encoder(-1.0)))["all", "rank correlation"] == -1
    assert set(means(run(HIERARCAPS, folder, constant(IMAGES))).values()) == {0.0}
    items = run(HIERARCAPS, folder, random(IMAGES)).items
    for _, line in items.groupby("metric"):
        assert line["value"].mean() == pytest.approx(line["chance"].mean(), abs=4 * line["value"].std() / IMAGES**0.5)


@pytest.mark.parametrize("rule", ["half", "win"])
def test_a_tie_never_lifts_precision_or_recall(folder, rule):
    def text(words: str) -> np.ndarray:
        """The third and the fourth text of an image are the same, so that they tie once both are within."""
        number, level = LEVEL.get(words, (0, 0))
        return np.eye(IMAGES)[number] * min(level, 3)

    items = run(HIERARCAPS, folder, Fake(IMAGES, lambda number: np.eye(IMAGES)[number], text)).items.assign(arm="m")
    tied = items[items["metric"] != "rank correlation"]
    assert (tied["tie"] & (tied["value"] > 0.25)).any()
    lines = [summarize(items, models=["m"], references=[], tie=name) for name in ("wrong", rule)]
    assert lines[0] == lines[1]
    shares = {line["metric"]: line["models"]["m"] for line in lines[1]}
    assert max(share["high"] for share in shares.values()) <= 1
    assert shares["precision"]["tie_rate"] == tied["tie"].mean()


def test_images_of_val2017_by_number_give_the_same(folder, tmp_path):
    alone = write(tmp_path / "alone")
    pool = images(tmp_path / "val2017")
    beside = run(HIERARCAPS, folder, random(IMAGES)).items
    pooled = run(HIERARCAPS, alone, random(IMAGES), val2017=pool).items
    assert pooled.equals(beside)
    assert pooled["image_id"][7] == "000000000007.jpg" and pooled["item"][7] == "7"


def test_images_of_val2017_are_whole_in_a_white_square_as_the_authors_own(tmp_path):
    alone, pool = write(tmp_path / "alone"), tmp_path / "val2017"
    pool.mkdir()
    for number in range(IMAGES):
        size = (640, 320) if number else (100, 200)
        Image.new("RGB", size, (200, 0, 0)).save(pool / f"{number:012}.jpg", quality=100)
    for benchmark in (HIERARCAPS, HIERARCAPS_LEVELS):
        folders = Folders(own={benchmark.name: alone, "val2017": pool})
        items = validate(benchmark, load_items(benchmark, folders))
        tall, wide = (np.asarray(decoded(items.images["image"][row], "")).astype(int) for row in (0, 1))
        assert wide.shape == tall.shape == (256, 256, 3) and benchmark.version == 2
        red, white = np.array([200, 0, 0]), np.array([255, 255, 255])
        assert np.abs(wide[66:190] - red).max() < 12 and (wide[:63] == white).all() and (wide[193:] == white).all()
        assert np.abs(tall[:, 66:190] - red).max() < 12 and (tall[:, :63] == white).all()


def test_the_table_comes_from_the_authors_repository(tmp_path, monkeypatch):
    asked = []

    def download(web, names):
        asked.append((web, names))
        return write(tmp_path / "web")

    monkeypatch.setattr(hub, "download_files", download)
    items = load_items(HIERARCAPS, Folders(own={"val2017": images(tmp_path / "val2017")}))
    commit = "ba22b8914db10973e38d2c03f08bb4dce7ba118e"
    assert asked == [(f"https://raw.githubusercontent.com/TAU-VAILab/hierarcaps/{commit}/data", (FILE,))]
    assert items.origin.commit == commit and len(items.rows) == IMAGES


def test_captions_are_cut_at_arrows_and_have_to_be_four(tmp_path):
    folder = write(tmp_path / "a", lambda number: ["a", "a, b", "c =>d", "e"][: 3 - (number == 3)])
    with pytest.raises(ValueError, match=r"row 3, .*'captions': found 2 .*'=>', expected 4: 'a => a, b'"):
        rows(folder)
    write(folder, lambda number: ["a", "a, b", "c =>d"])
    assert rows(folder)[0]["captions"] == ["a", "a, b", "c", "d"]


def test_a_missing_image_is_left_out(folder):
    (folder / "test_imgs" / "COCO_val2014_000000000003.jpg").unlink()
    items = validate(HIERARCAPS, load_items(HIERARCAPS, Folders(own={"hierarcaps": folder})))
    assert len(items.rows) == IMAGES - 1 and items.left_out == {NO_IMAGE: 1}


def test_level_by_level_the_first_text_is_level_4(folder):
    """Every image is found by its level-1 text alone."""
    folders = Folders(own={"hierarcaps": folder})
    rows = validate(HIERARCAPS_LEVELS, load_items(HIERARCAPS_LEVELS, folders)).rows
    assert [rows[f"level_{level}"][3] for level in (4, 3, 2, 1)] == captions(3)
    report = run(HIERARCAPS_LEVELS, folder, knowing({number: captions(number)[3:] for number in range(IMAGES)}))
    kinds = ("choice of 2", "choice of 10", "retrieval")
    expected = {("all", f"level {level} image {kind}"): float(level == 1) for level in (1, 2, 3, 4) for kind in kinds}
    assert means(report) == expected
    chances = report.items.groupby("metric")["chance"].first()
    assert [chances[f"level 4 image {kind}"] for kind in kinds] == [1 / 2, 1 / 10, 1 / IMAGES]
