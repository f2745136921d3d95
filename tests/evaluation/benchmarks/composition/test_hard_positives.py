"""Hard Positives in its authors' files, with photographs of Visual Genome in either of its folders (about 1 s)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks.composition.hard_positives import FILES, HARD_POSITIVES, SUBSETS
from hfcomp.evaluation.benchmarks.readers.pools import NO_AREA
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests import tiny
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import (
    Sighted,
    check_chance,
    frame_photo,
    items,
    numbered_texts,
    photos,
    repositories,
    scores,
)

NUMBERS = {subset: place + 1 for place, subset in enumerate(SUBSETS)}
TRUE = {number: [f"caption {number}", f"reworded {number}"] if number else [] for number in range(4)}
WEB = "https://raw.githubusercontent.com/amitakamath/hard_positives/33addaae84b58d96dc8e9251b61d497c536ed23d"
BOX = {"bbox_x": 40, "bbox_y": 30, "bbox_w": tiny.IMAGE_SIZE, "bbox_h": tiny.IMAGE_SIZE}
METRICS = ("original accuracy", "augmented accuracy", "brittleness")


def entry(subset: str, true: str, **changes: object) -> dict[str, object]:
    number = NUMBERS[subset]
    prefix = "" if subset == "swap" else f"data/VG_100K{'_2' if number == 2 else ''}/"
    texts = {"true_caption": f"{true} {number}", "false_caption": f"false {number}"}
    box = BOX if subset == "swap" else {}
    return {"image_id": str(number), "image_path": f"{prefix}{number}.jpg", **box, **texts, **changes}


def write(folder: Path, subset: str, first: list, second: list) -> None:
    for place, rows in (("data", first), ("swapped_data", second)):
        (folder / place).mkdir(parents=True, exist_ok=True)
        (folder / place / SUBSETS[subset]).write_text(json.dumps(rows))


@pytest.fixture
def folder(tmp_path) -> Path:
    """Subset k has k items about image k; the first subset shows it in a box."""
    place = tmp_path / "hard_positives"
    for subset, number in NUMBERS.items():
        write(place, subset, [entry(subset, "caption")] * number, [entry(subset, "reworded")] * number)
    images = place / "visual_genome"
    photos(images / "VG_100K", {"3.jpg": 3})
    photos(images / "VG_100K_2", {"2.jpg": 2})
    (images / "VG_100K" / "1.jpg").write_bytes(frame_photo(1, (40, 30)))
    return place


def test_known_scorers(folder):
    rows = items(HARD_POSITIVES, folder)
    perfect, inverted, constant = (
        run_benchmark(HARD_POSITIVES, rows, Sighted(encoder)).items.groupby("metric")
        for encoder in (oracle.knowing(TRUE), oracle.knowing(TRUE, 0, 1), oracle.constant(4))
    )
    assert [perfect["value"].mean()[metric] for metric in METRICS] == [1, 1, 0]
    assert [inverted["value"].mean()[metric] for metric in METRICS] == [0, 0, 0]
    assert [constant["value"].mean()[metric] for metric in METRICS] == [0, 0, 0]
    assert constant["tie"].mean().eq(1).all()


def test_a_random_scorer_is_at_chance():
    check_chance(HARD_POSITIVES, numbered_texts("positive_captions", "negative_captions"))


def test_a_rewording_below_the_false_caption_is_brittle(folder):
    """Of image 2, the rewording counts as false, and the false caption scores between the two: a half."""

    def text(written: str):
        vector = [1.0 if written in TRUE[number] else 0.0 for number in range(4)]
        if written.endswith(" 2"):
            vector[2] = {"caption": 1.0, "reworded": 0.0, "false": 0.5}[written.split()[0]]
        return oracle.np.array(vector)

    encoder = oracle.Fake(4, lambda number: oracle.np.eye(4)[number], text)
    values = scores(HARD_POSITIVES, run_benchmark(HARD_POSITIVES, items(HARD_POSITIVES, folder), Sighted(encoder)))
    assert [values["replace_att", metric] for metric in METRICS] == [1, 0, 1]
    assert [values["replace_rel", metric] for metric in METRICS] == [1, 1, 0]
    assert [values["REPLACE", metric] for metric in METRICS] == [1, 0.5, 0.5]


VALUES = {"caption": 0.6, "false": 0.8, "reworded": 0.7, "other": 0.5}


@pytest.mark.parametrize("changed", [{}, {"caption": 0.9, "other": 0.8}, {"false": 0.65}, {"other": 0.65}])
def test_the_caption_is_compared_with_its_own_false_one_and_the_rewording_with_the_other(folder, changed):
    """`orig_acc` and the counts that the authors' script prints, at 33addaa, in plain comparisons."""
    value = VALUES | changed
    other = entry("swap", "reworded", false_caption="other 1")
    write(folder, "swap", [entry("swap", "caption")], [other])
    rows = items(HARD_POSITIVES, folder)

    def text(written: str):
        kind, number = written.split()
        return oracle.np.array([0.0, value[kind], 0, 0] if number == "1" else [1.0, 0, 0, 0])

    encoder = oracle.Fake(4, lambda number: oracle.np.eye(4)[number], text)
    values = scores(HARD_POSITIVES, run_benchmark(HARD_POSITIVES, rows, Sighted(encoder)))
    caption, own, reworded, false = (value[name] for name in ("caption", "false", "reworded", "other"))
    expected = own < caption, false < reworded and false < caption
    between = caption > false > reworded or reworded > false > caption
    assert [values["swap", metric] for metric in METRICS] == [*expected, between]


def test_texts_of_the_repository_and_a_folder_of_photographs(folder, monkeypatch):
    asked = repositories(monkeypatch, {WEB: folder})
    images = (folder / "visual_genome").rename(folder.with_name("photographs"))
    rows = items(HARD_POSITIVES, None, visual_genome=images)
    assert asked == [(WEB, FILES)] and len(rows.rows) == 6
    assert rows.rows["image_id"][:] == ["1.jpg", "2.jpg", "2.jpg", "3.jpg", "3.jpg", "3.jpg"]
    with pytest.raises(Unavailable, match="visual_genome .*missing.*VG_100K_2"):
        load_items(HARD_POSITIVES)


def test_gaps_are_left_out_and_counted(folder):
    empty = entry("swap", "reworded", false_caption=" ")
    write(folder, "swap", [entry("swap", "caption", bbox_w=0), entry("swap", "b")], [entry("swap", "reworded"), empty])
    write(folder, "replace_att", [entry("replace_att", "caption")], [entry("replace_att", "", true_caption="")])
    (folder / "visual_genome" / "VG_100K" / "3.jpg").unlink()
    write(folder, "replace_rel", *[[entry("replace_rel", true), entry("replace_att", true)] for true in ("a", "b")])
    assert items(HARD_POSITIVES, folder).left_out == {NO_AREA: 1, EMPTY_CAPTION: 2, NO_IMAGE: 1}


def test_files_that_do_not_belong_together_are_named(folder):
    write(folder, "replace_rel", [entry("replace_rel", "a")] * 2, [entry("replace_rel", "b")])
    with pytest.raises(ValueError, match=r"swapped_data/vl_checklist_relations.json: .* 1 entries .* 2; .* 1 is"):
        items(HARD_POSITIVES, folder)
    write(folder, "replace_rel", [entry("replace_rel", "a")], [entry("replace_att", "b")])
    with pytest.raises(ValueError, match="same images .*entry 0"):
        items(HARD_POSITIVES, folder)
