"""Keyword ranking on any images with captions (about 5 s)."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from datasets import Dataset

from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.benchmarks.papers import keywords
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark, validate
from hfcomp.evaluation.sources import HubData, load_items
from hfcomp.evaluation.spec import BenchmarkData, Folders, Origin, Unavailable
from hfcomp.negatives.keywords import find_keywords
from hfcomp.negatives.keywords.tables import COLORS
from tests.evaluation.benchmarks.oracle import HubOnDisk, constant, knowing, means, parquet, photo, random, run

REAL = os.environ.get("HFCOMP_REAL_DATA")
CAPTIONS = [
    ["a white cat sits under a black umbrella.", "A cat."],
    ["a large red bus", "Two people wait"],
    ["a small bird behind a tree", "an orange on a plate"],
    ["a dog on the left", ""],
]
CONCEPTS = {"object": 6, "color": 3, "location": 3, "size": 2}
"""Captions of `CAPTIONS` with a keyword, counted by hand; "orange" is an object and a color."""
TABLE_8 = {"color": 3907, "location": 2527, "size": 2601}


def pairs(name: str = "pairs", **options):
    form = HubData("some/pairs", {"image": "image", "captions": "captions"}, {"all": {"split": "train"}})
    return keywords.keyword_benchmark(name, form, title="Pairs", license="", obtain="Get it.", **options)


@pytest.fixture
def folder(tmp_path) -> Path:
    photos = [photo(number) for number in range(len(CAPTIONS))]
    return parquet(tmp_path, "train-00000-of-00001", {"image": photos, "captions": CAPTIONS}, "image")


def items_of(benchmark, folder: Path, **own: Path) -> BenchmarkData:
    return validate(benchmark, load_items(benchmark, Folders(own={benchmark.name: folder, **own})))


def test_an_item_is_a_caption_with_all_its_permutations(folder):
    items = items_of(pairs(), folder)
    assert Counter(items.rows["subset"]) == CONCEPTS
    rows = {(row["subset"], row["item"]): row for row in items.rows}
    color = rows["color", "0/0"]
    assert color["caption"] == CAPTIONS[0][0]
    assert color[
        "negative_captions"
    ] == [  # the first keyword alone, in the order of Table 6, "a orange" as in Table 7
        f"a {other} cat sits under a black umbrella." for other in COLORS if other != "white"
    ]
    assert rows["location", "0/0"]["negative_captions"] == ["a white cat sits over a black umbrella."]
    assert rows["size", "2/0"]["negative_captions"] == ["a large bird behind a tree"]
    assert len(rows["object", "0/1"]["negative_captions"]) == 79
    assert ("object", "2/1") in rows and ("color", "2/1") in rows
    assert {row["image_id"] for row in rows.values()} == {f"{number}.png" for number in range(4)}


def test_the_image_of_an_item_is_that_of_its_caption(folder):
    items = items_of(pairs(), folder)
    for place, row in enumerate(items.rows):
        assert items.images["image"][place]["bytes"] == photo(int(row["image_id"].removesuffix(".png")))


def test_perfect_inverted_and_constant_encoders(folder):
    truth = dict(enumerate(CAPTIONS))
    perfect = run(pairs(), folder, knowing(truth))
    assert set(means(perfect).values()) == {1.0}
    chance = perfect.items[perfect.items["metric"] == "top-1"].groupby("subset")["chance"].unique()
    assert {name: list(values) for name, values in chance.items()} == {
        "object": [1 / 80], "color": [1 / 9], "location": [0.5], "size": [0.5],
    }  # fmt: skip
    inverted = means(run(pairs(), folder, knowing(truth, right=0.0, wrong=1.0)))
    for concept, candidates in (("object", 80), ("color", 9), ("location", 2), ("size", 2)):
        assert inverted[concept, "top-1"] == 0
        assert inverted[concept, "reciprocal rank"] == pytest.approx(1 / candidates)
    same = run(pairs(), folder, constant(len(CAPTIONS)))
    assert set(means(same).values()) == {0.0}
    assert same.items[same.items["metric"] == "top-1"]["tie"].all()


def test_a_random_encoder_is_at_chance(tmp_path):
    captions = [[f"a {color} {thing} under the {thing}"] for thing in map(str, range(40)) for color in COLORS]
    photos = [photo(0)] * len(captions)
    parquet(tmp_path, "train-0", {"image": photos, "captions": captions}, "image")
    items = run(pairs(concepts=("color", "location")), tmp_path, random(1)).items
    for _, line in items.groupby(["subset", "metric"]):
        assert line["value"].mean() == pytest.approx(line["chance"].mean(), abs=4 * line["value"].std() / 360**0.5)


def test_a_limit_draws_items_and_counts_the_others(folder):
    items = items_of(pairs(limit=2), folder)
    assert Counter(items.rows["subset"]) == {"object": 2, "color": 2, "location": 2, "size": 2}
    assert items.left_out == {"not among the 2 sampled per concept": 4 + 1 + 1}
    draws = {tuple(items_of(pairs(limit=2, seed=seed), folder).rows["item"]) for seed in range(8)}
    assert len(draws) > 1


def test_the_draw_of_an_item_does_not_hang_on_its_place():
    rows = [{"item": f"i{number}", "image": {"bytes": photo(0)}, "caption": "a red hat"} for number in range(40)]
    data = pairs(concepts=("color",), limit=10).data[0]
    drawn = data.adapt(BenchmarkData(Dataset.from_list(rows), Origin("here")), Folders(), None).rows["item"][:]
    turned = data.adapt(BenchmarkData(Dataset.from_list(rows[::-1]), Origin("here")), Folders(), None).rows["item"][:]
    assert sorted(drawn) == sorted(turned)
    assert drawn == turned[::-1] == sorted(drawn, key=lambda name: int(name[1:]))
    fewer = [row for row in rows if row["item"] in drawn or int(row["item"][1:]) % 2]
    assert (
        data.adapt(BenchmarkData(Dataset.from_list(fewer), Origin("here")), Folders(), None).rows["item"][:] == drawn
    )


def test_captions_whose_image_is_missing_make_no_room_in_the_draw():
    rows = Dataset.from_dict({"image": [None] * 30 + [{"bytes": photo(0)}] * 3, "caption": ["a red hat"] * 33})
    data = pairs(concepts=("color",), limit=2).data[0]
    items = data.adapt(BenchmarkData(rows, Origin("here")), Folders(), None)
    assert len(items.rows) == 2 and all(int(name) >= 30 for name in items.rows["item"])
    assert sum(items.left_out.values()) == 31 and items.left_out[NO_IMAGE] >= 1
    few = pairs(concepts=("color",), limit=5).data[0].adapt(BenchmarkData(rows, Origin("here")), Folders(), None)
    assert len(few.rows) == 3 and few.left_out == {NO_IMAGE: 30}


def test_rows_without_a_caption_are_counted(tmp_path):
    parquet(
        tmp_path,
        "train-0",
        {"image": [photo(0), photo(1), photo(2)], "captions": [["a red hat", None], [""], [" "]]},
        "image",
    )
    items = items_of(pairs(), tmp_path)
    assert len(items.rows) == 1 and items.left_out == {EMPTY_CAPTION: 2}


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match="colr.*object, color"):
        pairs(concepts=("colr",))
    with pytest.raises(ValueError, match="limit: found 0"):
        pairs(limit=0)
    parquet(tmp_path / "none", "train-0", {"image": [photo(0)], "captions": [["nothing here"]]}, "image")
    with pytest.raises(ValueError, match="object, color"):
        items_of(pairs(), tmp_path / "none")
    parquet(tmp_path / "wrong", "train-0", {"image": [photo(0)], "text": ["a red hat"]}, "image")
    with pytest.raises(ValueError, match="no column 'captions'.*'image', 'text'"):
        items_of(pairs(), tmp_path / "wrong")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="not contain .*Get it"):
        items_of(pairs(), tmp_path / "empty")
    uneven = tmp_path / "uneven"
    uneven.mkdir()
    content = {"image_urls": ["http://a/1.png"], "captions": ["a red hat", "a blue hat"]}
    (uneven / "sbu-captions-all.json").write_text(json.dumps(content))
    (uneven / "sbu_images").mkdir()
    with pytest.raises(ValueError, match="1 image_urls and 2 captions"):
        items_of(keywords.KEYWORDS_SBU, uneven)


HUB = {
    "keywords_coco": ("lmms-lab/COCO-Caption2017", "val", "image", "answer", {"question_id": "000000{:06}.jpg"}),
    "keywords_flickr30k": ("lmms-lab/flickr30k", "test", "image", "caption", {"filename": "{}.jpg"}),
    "keywords_fashion200k": ("Marqo/fashion200k", "data", "image", "text", {"item_ID": "5791000{}_0"}),
    "keywords_nasa": ("nkasmanoff/nasa_earth_instagram", "train", "image", "text", {}),
    "keywords_oldbook": ("gigant/oldbookillustrations", "train", "1600px", "info_alt", {"rawscan": "{}"}),
}


@pytest.mark.parametrize("name", HUB)
def test_each_set_is_read_in_the_layout_of_the_hub(name, tmp_path, monkeypatch):
    repo, split, image, caption, others = HUB[name]
    lists = caption in ("answer", "caption")
    truth = dict(enumerate(CAPTIONS)) if lists else {number: [texts[0]] for number, texts in enumerate(CAPTIONS)}
    columns = {
        image: [photo(number) for number in truth],
        caption: CAPTIONS if lists else [texts[0] for texts in CAPTIONS],
        **{key: [form.format(number) for number in truth] for key, form in others.items()},
    }
    parquet(tmp_path, f"{split}-00000-of-00001", columns, image)
    (tmp_path / "README.md").write_text(
        f"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: {split}\n    path: data/{split}-*\n---\n"
    )
    hub = HubOnDisk(monkeypatch)
    hub.folders[repo] = tmp_path
    benchmark = find_benchmarks([name])[0]
    report = run(benchmark, None, knowing(truth))
    assert [(asked, options["split"]) for asked, options in hub.asked] == [(repo, split)]
    assert set(means(report).values()) == {1.0}
    assert set(report.items["subset"]) == set(benchmark.data[-1].adapt.concepts)
    locally = run(benchmark, tmp_path, knowing(truth))
    assert locally.items.equals(report.items)


def test_photographs_of_a_product_are_drawn_together():
    rows = keywords.by_product(Dataset.from_dict({"item_ID": ["57910_0", "57910_1", "12"]}))
    assert rows["image_id"][:] == ["57910", "57910", "12"]


def test_raw_files_of_coco_flickr30k_and_sbu(tmp_path):
    truth = dict(enumerate(CAPTIONS[:3]))
    for folder in ("val2017", "flickr30k-images", "sbu_images"):
        (tmp_path / folder).mkdir()
        for number in truth:
            (tmp_path / folder / f"{number}.png").write_bytes(photo(number))
    images = [{"id": 10 * number, "file_name": f"{number}.png"} for number in truth]
    annotations = [
        {"image_id": 10 * number, "id": 100 - number, "caption": text}
        for number, texts in reversed(truth.items())
        for text in texts
    ]
    content = json.dumps({"images": images, "annotations": annotations})
    (tmp_path / "captions_val2017.json").write_text(content)
    lines = [f"{number}.png#{place}\t{text}" for number, texts in truth.items() for place, text in enumerate(texts)]
    (tmp_path / "results_20130124.token").write_text("\n".join(lines) + "\n")
    urls = [f"http://static.flickr.com/1/{number}.png" for number in (0, 1, 7)]
    texts = [CAPTIONS[0][0], CAPTIONS[1][0], "a gray cat"]
    (tmp_path / "sbu-captions-all.json").write_text(
        json.dumps({"image_urls": urls, "user_ids": ["", "", ""], "captions": texts})
    )
    by_benchmark = {}
    for benchmark in (keywords.KEYWORDS_COCO, keywords.KEYWORDS_FLICKR30K, keywords.KEYWORDS_SBU):
        items = items_of(benchmark, tmp_path)
        by_benchmark[benchmark.name] = [
            (row["subset"], row["item"], row["image_id"], row["caption"]) for row in items.rows
        ]
        report = run_benchmark(benchmark, items, knowing(truth))
        assert set(means(report).values()) == {1.0}
    assert by_benchmark["keywords_coco"] == by_benchmark["keywords_flickr30k"]
    assert ("color", "0.png/0", "0.png", CAPTIONS[0][0]) in by_benchmark["keywords_coco"]
    assert {image for *_, image, _ in by_benchmark["keywords_sbu"]} == {"0.png", "1.png"}
    assert items.left_out == {NO_IMAGE: 2}  # "a gray cat" would have been an item of two concepts


def test_sbu_says_how_to_get_it():
    with pytest.raises(Unavailable, match="Not on the Hub.*--data keywords_sbu=FOLDER"):
        load_items(keywords.KEYWORDS_SBU)


@pytest.mark.skipif(REAL is None, reason="HFCOMP_REAL_DATA is not set")
def test_coco_has_the_papers_numbers_of_captions():
    """Rösch et al. 2024, Table 8."""
    pairs = keywords.KEYWORDS_COCO.data[0].data
    folders = Folders(own={"val2017": Path(REAL) / "coco" / "open_256"})
    captions = pairs.local(Path(REAL) / "coco", folders)
    rows = keywords.KeywordItems(tuple(TABLE_8), limit=None)(captions).rows
    assert Counter(rows["subset"]) == TABLE_8
    assert Counter(map(len, rows["negative_captions"])) == {8: 3907, 1: 2527 + 2601}


@pytest.mark.skipif(REAL is None, reason="HFCOMP_REAL_DATA is not set")
def test_the_photographs_that_are_there_are_drawn_of_coco():
    items = items_of(keywords.KEYWORDS_COCO, Path(REAL) / "coco", val2017=Path(REAL) / "coco" / "open_256")
    lines = (Path(REAL) / "coco_open_256.jsonl").read_text(encoding="utf-8").splitlines()
    photographs = [json.loads(line) for line in lines]
    captions = [
        text for photograph in photographs if photograph["split"] == "val2017" for text in photograph["captions"]
    ]
    expected = {concept: sum(bool(find_keywords(text, concept)) for text in captions) for concept in CONCEPTS}
    assert Counter(items.rows["subset"]) == expected
    assert items.left_out == {NO_IMAGE: 12_969 + sum(TABLE_8.values()) - len(items.rows)}
