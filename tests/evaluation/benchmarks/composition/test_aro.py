"""ARO in the layout of MTEB's copies and in its authors' files (about 3 s)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks.composition.aro import (
    ARO_ATTRIBUTION,
    ARO_ORDER,
    ARO_RELATION,
    RARE_REASON,
    SYMMETRIC,
    SYMMETRIC_REASON,
)
from hfcomp.evaluation.benchmarks.readers.pools import NO_AREA
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests import tiny
from tests.evaluation.benchmarks import oracle
from tests.evaluation.encoders import (
    Sighted,
    check_chance,
    check_known_scorers,
    frame_photo,
    hub_folder,
    items,
    scores,
)

BOX = (40, 30)
SIZE = tiny.IMAGE_SIZE
RELATIONS = ("on", "on", "on", "riding", "near")
TRUE = {number: [f"true {number}"] for number in range(len(RELATIONS))}
COCO_ORDER, FLICKR_ORDER = ARO_ORDER


def captions(number: int) -> dict[str, list[str]]:
    return {
        "true_caption": [f"true {row}" for row in range(number)],
        "false_caption": [f"false {row}" for row in range(number)],
    }


def relation_on_hub(folder: Path, **changes: list) -> Path:
    """Photo k in the box of image k, with the columns of `mteb/ARO-Visual-Relation`; its boxes are floats."""
    columns = {
        "image": [frame_photo(row, BOX) for row in range(len(RELATIONS))],
        **captions(len(RELATIONS)),
        "relation_name": list(RELATIONS),
        "bbox": [{"x": 40.0, "y": 30.0, "w": float(SIZE), "h": float(SIZE)}] * len(RELATIONS),
    }
    return hub_folder(folder, "test", columns | changes, images=["image"])


def raw(folder: Path, part: str, subsets: list, key: str, **changes: object) -> Path:
    """The authors' list of items beside a folder of images."""
    (folder / "images").mkdir(parents=True)
    records = []
    for row, subset in enumerate(subsets):
        (folder / "images" / f"{row}.jpg").write_bytes(frame_photo(row, BOX))
        texts = {"true_caption": f"true {row}", "false_caption": f"false {row}", key: subset, "image_id": str(row)}
        box = {"bbox_x": BOX[0], "bbox_y": BOX[1], "bbox_w": SIZE, "bbox_h": SIZE}
        records.append({"image_path": f"{row}.jpg", **box, **texts, **changes})
    (folder / f"visual_genome_{part}.json").write_text(json.dumps(records))
    return folder


def relation_raw(folder: Path, **changes: object) -> Path:
    return raw(folder, "relation", list(RELATIONS), "relation_name", **changes)


@pytest.mark.parametrize("layout", [relation_on_hub, relation_raw])
def test_relations_are_scored_in_their_boxes_without_the_symmetric_ones(tmp_path, layout):
    """Only the box shows a photo that the encoder knows."""
    rows = items(ARO_RELATION, layout(tmp_path / "aro_relation"))
    assert rows.left_out == {SYMMETRIC_REASON: 1}
    assert rows.rows["subset"][:] == ["on", "on", "on", "riding"]
    check_known_scorers(ARO_RELATION, rows, TRUE)


def test_the_average_over_relations_and_over_items(tmp_path):
    encoder = Sighted(oracle.knowing(TRUE | {3: []}))
    report = run_benchmark(ARO_RELATION, items(ARO_RELATION, relation_on_hub(tmp_path / "r")), encoder)
    values = scores(ARO_RELATION, report)
    assert values["macro of relations", "caption choice"] == 1 / 2
    assert values["micro", "caption choice"] == 3 / 4


def test_the_list_of_symmetric_relations_is_whole():
    assert len(SYMMETRIC) == 157
    assert {"next to", "with", "of", "around", "adjusting", "wrapped in"} <= SYMMETRIC
    assert not {"on", "in", "to the left of", "riding", ""} & SYMMETRIC


def test_a_box_without_an_area_and_gaps_are_left_out(tmp_path):
    whole = {"x": 40.0, "y": 30.0, "w": float(SIZE), "h": float(SIZE)}
    rows = items(
        ARO_RELATION,
        relation_on_hub(
            tmp_path / "r",
            bbox=[whole | {"w": 0.0}, whole, whole, whole, whole],
            image=[*(frame_photo(row, BOX) for row in range(3)), None, frame_photo(4, BOX)],
            false_caption=["false 0", "", "false 2", "false 3", "false 4"],
        ),
    )
    assert rows.left_out == {NO_AREA: 1, EMPTY_CAPTION: 1, NO_IMAGE: 1, SYMMETRIC_REASON: 1}
    assert rows.rows["item"][:] == ["2"]


def test_items_of_one_photograph_share_its_file_name(tmp_path):
    rows = items(ARO_RELATION, relation_raw(tmp_path / "r", image_path="2.jpg", bbox_w=10))
    assert set(rows.rows["image_id"]) == {"2.jpg"}


def test_attributes_are_paired_in_order_and_rare_pairs_left_out(tmp_path):
    """26 items of one pair, 3 of its mirror image."""
    pairs = [["red", "small"]] * 26 + [["small", "red"]] * 3
    columns = {
        "image": [frame_photo(row % 4, BOX) for row in range(29)],
        **captions(29),
        "attributes": pairs,
        "obj1": ["cat"] * 29,
        "bbox": [{"x": 40.0, "y": 30.0, "w": float(SIZE), "h": float(SIZE)}] * 29,
    }
    true = {number: [f"true {row}" for row in range(number, 29, 4)] for number in range(4)}
    hub = items(ARO_ATTRIBUTION, hub_folder(tmp_path / "hub", "test", columns, images=["image"]))
    own = items(ARO_ATTRIBUTION, raw(tmp_path / "raw", "attribution", pairs, "attributes"))
    for rows in (hub, own):
        assert rows.left_out == {RARE_REASON: 3}
        assert rows.rows["subset"][:] == ["red_small"] * 26
    check_known_scorers(ARO_ATTRIBUTION, hub, true)


def test_other_columns_and_entries_are_named(tmp_path):
    columns = captions(2) | {"image": [frame_photo(0, BOX)] * 2}
    with pytest.raises(ValueError, match="no column 'attributes', 'bbox'.*'true_caption'"):
        items(ARO_ATTRIBUTION, hub_folder(tmp_path / "hub", "test", columns, images=["image"]))
    place = relation_raw(tmp_path / "raw")
    (place / "visual_genome_relation.json").write_text('[{"image_path": "0.jpg"}]')
    with pytest.raises(ValueError, match="visual_genome_relation.json, entry '0': .*'true_caption'"):
        items(ARO_RELATION, place)


def order_on_hub(folder: Path, **changes: list) -> Path:
    """Two captions of each of two photographs; the last shuffle of the last caption is the caption."""
    columns = {
        "images": [oracle.photo(row // 2) for row in range(4)],
        "correct_caption": [f"true {row}" for row in range(4)],
        **{f"hard_text_{slot}": [f"shuffle {slot} of {row}" for row in range(4)] for slot in range(1, 5)},
    }
    columns["hard_text_4"][3] = "true 3"
    return hub_folder(folder, "test", columns | changes, images=["images"], named=False)


ORDER_TRUE = {0: ["true 0", "true 1"], 1: ["true 2", "true 3"]}


@pytest.mark.parametrize("benchmark", ARO_ORDER, ids=lambda benchmark: benchmark.name)
def test_order_is_one_of_five_and_a_shuffle_that_changes_nothing_has_no_answer(tmp_path, benchmark):
    rows = items(benchmark, order_on_hub(tmp_path / "order"))
    report = run_benchmark(benchmark, rows, Sighted(oracle.knowing(ORDER_TRUE)))
    assert report.items["value"].tolist() == [1, 1, 1, 0]
    assert report.items["tie"].tolist() == [False, False, False, True]
    assert rows.unsolvable == 1 and set(report.items["chance"]) == {1 / 5}


def test_order_of_known_scorers(tmp_path):
    solvable = order_on_hub(tmp_path / "order", hard_text_4=[f"shuffle 4 of {row}" for row in range(4)])
    check_known_scorers(COCO_ORDER, items(COCO_ORDER, solvable), ORDER_TRUE)


def test_order_of_a_random_scorer_is_at_chance():
    negatives = [[f"{slot} of {row}" for slot in range(4)] for row in range(1500)]
    check_chance(COCO_ORDER, {"caption": [f"a {row}" for row in range(1500)], "negative_captions": negatives})


def test_captions_of_one_photograph_are_told_by_the_image_s_bytes(tmp_path):
    names = items(FLICKR_ORDER, order_on_hub(tmp_path / "order")).rows["image_id"][:]
    assert names[0] == names[1] != names[2] == names[3]


def test_all_four_come_from_the_hub_at_pinned_commits(tmp_path, monkeypatch, clip):
    boxes = relation_on_hub(tmp_path / "relation", relation_name=["on"] * 5)
    pairs = hub_folder(
        tmp_path / "attribution",
        "test",
        {
            "image": [frame_photo(0, BOX)] * 25,
            **captions(25),
            "attributes": [["a", "b"]] * 25,
            "bbox": [{"x": 1.0, "y": 1.0, "w": 9.0, "h": 9.0}] * 25,
        },
        images=["image"],
    )
    order = order_on_hub(tmp_path / "order")
    hub = oracle.HubOnDisk(
        monkeypatch,
        **{
            "mteb/ARO-Visual-Relation": boxes,
            "mteb/ARO-Visual-Attribution": pairs,
            "mteb/ARO-COCO-order": order,
            "mteb/ARO-Flickr-Order": order,
        },
    )
    embedder = Embedder(clip)
    reports = [
        run_benchmark(benchmark, items(benchmark, None), embedder)
        for benchmark in (ARO_RELATION, ARO_ATTRIBUTION, *ARO_ORDER)
    ]
    assert [(report.images, len(report.items)) for report in reports] == [(5, 5), (1, 25), (2, 4), (2, 4)]
    assert [(name, options["split"], options["revision"]) for name, options in hub.asked] == [
        ("mteb/ARO-Visual-Relation", "test", "53c1115ab5871ab33b09d5bb8856236d46bdaf2d"),
        ("mteb/ARO-Visual-Attribution", "test", "25fe9b460426ff67cdb0608a737c94f8f49a901e"),
        ("mteb/ARO-COCO-order", "test", "53c20afc02a87fed8c0245dde2e00f054da4b861"),
        ("mteb/ARO-Flickr-Order", "test", "e5d7f3502345b2c398a6645b4d09b44e650287bf"),
    ]


def test_what_is_not_on_the_hub_is_said(monkeypatch):
    oracle.HubOnDisk(monkeypatch)
    with pytest.raises(Unavailable, match="ARO-Visual-Relation .*not on the Hub"):
        load_items(ARO_RELATION)
