"""Retrieval among photographs with five captions each."""

from __future__ import annotations

import io
import json
import os
import statistics
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from hfcomp.evaluation.benchmarks import find_benchmarks, suite
from hfcomp.evaluation.benchmarks.retrieval.descriptions import DOCCI, IMAGEINWORDS, IMAGEINWORDS_400, sentences
from hfcomp.evaluation.benchmarks.retrieval.retrieval import (
    COCO2017_RETRIEVAL,
    COCO_CAPTION_CHOICE,
    COCO_RETRIEVAL,
    FLICKR8K,
    FLICKR30K,
    FLICKR30K_ALL,
)
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Folders, Unavailable
from tests.evaluation.benchmarks.oracle import HubOnDisk, constant, knowing, means, parquet, photo, random, run

REAL = os.environ.get("HFCOMP_REAL_DATA")
IMAGES = 24
TRUTH = {number: [f"caption {place} of {number}" for place in range(4 + number % 2)] for number in range(IMAGES)}
"""Four or five captions."""
DIRECTIONS = ("text-to-image", "image-to-text")
METRICS = {("all", f"{direction} recall@{k}") for direction in DIRECTIONS for k in (1, 5, 10)}
SETS = {
    FLICKR8K.name: ("dataset_flickr8k.json", "flickr8k_test.json", "flickr8k-images", "wds_flickr8k"),
    FLICKR30K.name: ("dataset_flickr30k.json", "flickr30k_test.json", "flickr30k-images", "wds_flickr30k"),
    COCO_RETRIEVAL.name: ("dataset_coco.json", "coco_karpathy_test.json", "val2014", "wds_mscoco_captions"),
}
EACH = pytest.mark.parametrize(
    "benchmark", (FLICKR8K, FLICKR30K, COCO_RETRIEVAL), ids=lambda benchmark: benchmark.name
)


def images(folder: Path, form: str = "{}.jpg") -> Path:
    folder.mkdir(parents=True)
    for number in TRUTH:
        (folder / form.format(number)).write_bytes(photo(number))
    return folder


def karpathy(benchmark, folder: Path, **changes) -> Path:
    file, _, pool, _ = SETS[benchmark.name]
    images(folder / pool)
    rows = [
        {"filename": f"{number}.jpg", "split": "test", "sentences": [{"raw": text, "tokens": []} for text in texts]}
        for number, texts in TRUTH.items()
    ]
    rows.append({"filename": "0.jpg", "split": "restval", "sentences": [{"raw": "of another split"}]})
    rows[0] |= changes
    (folder / file).write_text(json.dumps({"images": rows, "dataset": "any"}))
    return folder


def archive(folder: Path, *, without: str = "") -> Path:
    """A repository of clip-benchmark: one archive of images and lines, and a count of archives beside."""
    (folder / "test").mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "test" / "0.tar", "w") as tar:
        for number, texts in TRUTH.items():
            for ending, content in (("jpg", photo(number)), ("txt", "\n".join(texts).encode())):
                member = tarfile.TarInfo(f"s{number:07}.{ending}")
                member.size = len(content)
                if member.name != without:
                    tar.addfile(member, io.BytesIO(content))
    (folder / "test" / "nshards.txt").write_text("1")
    (folder / "dataset_type.txt").write_text("retrieval")
    return folder


@EACH
def test_an_archive_that_is_cut_damaged_or_missing_is_refused(benchmark, tmp_path):
    path = archive(tmp_path) / "test" / "0.tar"
    whole = path.read_bytes()
    with tarfile.open(path) as tar:
        last = tar.getmembers()[-2].offset
    for damaged in (whole[:last], whole[: last + 100], whole[:-9000], whole[:last] + b"?" + whole[last + 1 :], b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="0.tar .*not a complete"):
            load_items(benchmark, Folders(own={benchmark.name: tmp_path}))
    (tmp_path / "test" / "nshards.txt").write_text("2")
    with pytest.raises(ValueError, match=r"test: 1 of 2 archives .* 1.tar"):
        load_items(benchmark, Folders(own={benchmark.name: tmp_path}))
    number = max(TRUTH)
    archive(tmp_path, without=f"s{number:07}.txt")
    with pytest.raises(ValueError, match=f"'.*s{number:07}' .*no .txt"):
        load_items(benchmark, Folders(own={benchmark.name: tmp_path}))
    archive(tmp_path, without=f"s{number:07}.jpg")
    items = validate(benchmark, load_items(benchmark, Folders(own={benchmark.name: tmp_path})))
    assert items.left_out == {NO_IMAGE: 1}


def test_coco_2017_is_read_from_its_annotations(tmp_path):
    images(tmp_path / "val2017")
    files = [{"id": number, "file_name": f"{number}.jpg"} for number in TRUTH]
    captions = [{"image_id": number, "caption": text} for number, texts in TRUTH.items() for text in texts]
    (tmp_path / "captions_val2017.json").write_text(json.dumps({"images": files, "annotations": captions[::-1]}))
    assert means(run(COCO2017_RETRIEVAL, tmp_path, knowing(TRUTH))) == dict.fromkeys(METRICS, 1.0)
    assert COCO2017_RETRIEVAL not in suite("general")


@EACH
def test_scorers_against_chance(benchmark, tmp_path):
    folder = karpathy(benchmark, tmp_path)
    perfect = run(benchmark, folder, knowing(TRUTH))
    assert means(perfect) == dict.fromkeys(METRICS, 1.0)
    assert len(perfect.items) == 3 * IMAGES + 3 * sum(map(len, TRUTH.values()))
    assert set(means(run(benchmark, folder, knowing(TRUTH, right=0.0, wrong=1.0))).values()) == {0.0}
    assert set(means(run(benchmark, folder, constant(IMAGES))).values()) == {0.0}
    tables = [run(benchmark, folder, random(IMAGES, seed)).items for seed in range(8)]
    for metric in METRICS:
        of_seed = [table[table["metric"] == metric[1]] for table in tables]
        values = [table["value"].mean() for table in of_seed]
        error = statistics.stdev(values) / 8**0.5
        assert statistics.mean(values) == pytest.approx(of_seed[0]["chance"].mean(), abs=4 * error), metric


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([1, 1, 1, 1, 1], {"text-to-image recall@1", "image-to-text recall@1"}),
        ([2, 2, 2, 2, 2], {"text-to-image recall@1", "image-to-text recall@1", "image-to-text recall@5"}),
        ([6, 2], {"text-to-image recall@1", "image-to-text recall@1"}),  # the first image has two wrong texts
        ([8], set()),
    ],
)
def test_a_k_that_nobody_can_miss_is_left_out(texts, expected, tmp_path):
    truth = {number: [f"caption {place} of {number}" for place in range(own)] for number, own in enumerate(texts)}
    (tmp_path / "flickr30k-images").mkdir()
    for number in truth:
        (tmp_path / "flickr30k-images" / f"{number}.jpg").write_bytes(photo(number))
    rows = [{"image": f"flickr30k-images/{number}.jpg", "caption": own} for number, own in truth.items()]
    (tmp_path / "flickr30k_test.json").write_text(json.dumps(rows))
    report = run(FLICKR30K, tmp_path, constant(len(texts)))
    if not expected:
        assert report.items.empty
        return
    assert means(report) == {("all", metric): 0.0 for metric in expected}
    assert means(run(FLICKR30K, tmp_path, knowing(truth))) == {("all", metric): 1.0 for metric in expected}
    assert report.items["chance"].max() < 1


@EACH
def test_each_layout_gives_the_same(benchmark, tmp_path, monkeypatch):
    _, file, pool, repo = SETS[benchmark.name]
    first = run(benchmark, karpathy(benchmark, tmp_path / "karpathy"), random(IMAGES)).items
    listed = tmp_path / "listed"
    images(listed / pool)
    rows = [{"image": f"{pool}/{number}.jpg", "caption": texts} for number, texts in TRUTH.items()]
    (listed / file).write_text(json.dumps(rows))
    assert run(benchmark, listed, random(IMAGES)).items.equals(first)
    hub = HubOnDisk(monkeypatch)
    hub.folders[f"clip-benchmark/{repo}"] = folder = archive(tmp_path / "hub")
    remote = run(benchmark, None, random(IMAGES)).items
    assert [(name, options["split"]) for name, options in hub.asked] == [(f"clip-benchmark/{repo}", "test")]
    assert remote.equals(run(benchmark, folder, random(IMAGES)).items)
    assert remote[["metric", "value", "tie", "chance"]].equals(first[["metric", "value", "tie", "chance"]])
    assert first["item"][4] == "1.jpg/0" and first["image_id"][4] == "1.jpg"
    assert remote["item"][4] == "s0000001/0"


@EACH
def test_a_row_that_lacks_something_is_left_out_or_named(benchmark, tmp_path):
    folder = karpathy(benchmark, tmp_path / "a", sentences=[{"raw": ""}])
    (folder / SETS[benchmark.name][2] / "5.jpg").unlink()
    items = validate(benchmark, load_items(benchmark, Folders(own={benchmark.name: folder})))
    assert len(items.rows) == IMAGES - 2 and items.left_out == {EMPTY_CAPTION: 1, NO_IMAGE: 1}
    twice = karpathy(benchmark, tmp_path / "b", filename="1.jpg")
    with pytest.raises(ValueError, match="'all/1.jpg' in rows 0 and 1"):
        validate(benchmark, load_items(benchmark, Folders(own={benchmark.name: twice})))
    (folder / SETS[benchmark.name][0]).write_text(json.dumps({"images": [{"filename": "0.jpg"}]}))
    with pytest.raises(ValueError, match="entry '0': .*'split', 'sentences'"):
        load_items(benchmark, Folders(own={benchmark.name: folder}))


@EACH
def test_without_a_network_it_says_how_to_get_it(benchmark, monkeypatch):
    HubOnDisk(monkeypatch)
    with pytest.raises(Unavailable, match=f"{SETS[benchmark.name][3]} .*Downloaded"):
        load_items(benchmark)


def test_descriptions_are_cut_at_every_full_stop_and_line():
    text = 'A sign reads "STOP." It is 3.5 m high.\nNear St. Paul</s>an oak. H. U.S.'
    assert sentences(text) == ['A sign reads "STOP', '" It is 3', "5 m high", "Near St", "Paul", "an oak"]
    assert sentences("") == sentences(". \n.") == []


def sentence_truth() -> dict[int, list[str]]:
    return {number: [f"A thing {number}", f"and a place {number}"] for number in TRUTH}


def description(number: int) -> str:
    return f"A thing {number}. H.\nand a place {number}."


def annotations(file: Path, form: str) -> None:
    rows = [
        {"image_id": number, "image": form.format(number), "caption": text, "caption_id": place}
        for number, texts in sentence_truth().items()
        for place, text in enumerate(texts)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"annotations": rows}))


def test_docci_in_each_layout(tmp_path, monkeypatch):
    raw, flair = tmp_path / "raw", tmp_path / "flair"
    images(raw / "images", "test_{:05}.jpg")
    lines = [
        {
            "example_id": f"test_{number:05}",
            "split": "test",
            "image_file": f"test_{number:05}.jpg",
            "description": description(number),
        }
        for number in TRUTH
    ]
    lines.append({**lines[0], "split": "train"})
    (raw / "docci_descriptions.jsonlines").write_text("".join(json.dumps(line) + "\n" for line in lines))
    first = run(DOCCI, raw, random(IMAGES)).items
    assert means(run(DOCCI, raw, knowing(sentence_truth()))) == dict.fromkeys(METRICS, 1.0)

    images(flair / "images", "test_{:05}.jpg")
    annotations(flair / "annotations" / "test_annotations.json", "test_{:05}.jpg")
    other = run(DOCCI, flair, random(IMAGES)).items
    assert other.drop(columns="item").equals(first.drop(columns="item"))

    columns = {"image_file": [photo(number) for number in TRUTH], "description": list(map(description, TRUTH))}
    folder = parquet(tmp_path / "hub", "test-00000-of-00001", columns, "image_file")
    hub = HubOnDisk(monkeypatch)
    hub.folders["nicolollo/docci"] = folder
    remote = run(DOCCI, None, random(IMAGES)).items
    assert hub.asked[0][1]["revision"] == "d25e433474a72db3853da8e208d564e9b98795e6"
    assert remote["value"].equals(first["value"]) and remote.equals(run(DOCCI, folder, random(IMAGES)).items)


@pytest.fixture
def words(tmp_path) -> Path:
    """ImageInWords: eight images in each part."""
    parts = {"DOCCI_Test": ("image", "docci", "{}", "{}.jpg"), "IIW-400": ("image/key", "docci_aar", "{}", "{}.jpg")}
    parts["DCI_Test"] = ("image", "dci", "{}.jpg", "{}.jpg")
    rows = []
    for part, (field, place, name, file) in enumerate(parts.values()):
        lines = []
        (tmp_path / place).mkdir()
        for number in range(8 * part, 8 * part + 8):
            (tmp_path / place / file.format(number)).write_bytes(photo(number))
            lines.append({field: name.format(number), "IIW": description(number), "IIW-P5B": "Of a machine."})
            image = f"{place}/{file.format(number)}"
            rows += [{"image": image, "caption": text} for text in sentence_truth()[number]]
        folder = tmp_path / list(parts)[part]
        folder.mkdir()
        (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flair = tmp_path / "flair"
    flair.mkdir()
    (flair / "test_annotations.json").write_text(json.dumps({"annotations": rows}))
    for place in ("docci", "docci_aar", "dci"):
        (flair / place).symlink_to(tmp_path / place)
    return tmp_path


def test_imageinwords_in_each_layout(words):
    perfect = run(IMAGEINWORDS, words, knowing(sentence_truth()))
    assert means(perfect) == dict.fromkeys(METRICS, 1.0) and perfect.images == IMAGES and perfect.texts == 2 * IMAGES
    first = run(IMAGEINWORDS, words, random(IMAGES)).items
    assert run(IMAGEINWORDS, words / "flair", random(IMAGES)).items.equals(first)
    assert first["item"][0] == "docci/0.jpg/0" and first["image_id"][0] == "docci/0.jpg"


def test_imageinwords_400_is_one_part_of_it(words):
    alone = run(IMAGEINWORDS_400, words, knowing(sentence_truth()))
    assert set(alone.items["image_id"]) == {f"docci_aar/{number}.jpg" for number in range(8, 16)}
    assert alone.items.equals(run(IMAGEINWORDS_400, words / "flair", knowing(sentence_truth())).items)


def test_imageinwords_says_where_its_images_are():
    with pytest.raises(Unavailable, match="docci_images_aar.tar.gz.*--data imageinwords_400=FOLDER"):
        load_items(find_benchmarks(["imageinwords_400"])[0])


@pytest.mark.skipif(REAL is None, reason="HFCOMP_REAL_DATA is not set")
def test_a_model_on_real_photographs(tmp_path, clip):
    lines = (Path(REAL) / "coco_open_256.jsonl").read_text(encoding="utf-8").splitlines()[:64]
    rows = [json.loads(line) for line in lines]
    listed = [{"image": row["image"], "caption": row["captions"]} for row in rows]
    (tmp_path / "coco_karpathy_test.json").write_text(json.dumps(listed))
    embedder = Embedder(clip)
    report = run(COCO_RETRIEVAL, tmp_path, embedder, val2014=Path(REAL) / "coco" / "open_256")
    tokens, _ = embedder.tokenizer([text for row in rows for text in row["captions"]])
    assert report.images == 64 and report.texts == len(set(map(tuple, tokens)))
    assert set(means(report)) == METRICS
    chance = report.items.groupby("metric")["chance"].mean()
    assert chance["text-to-image recall@5"] == 5 / 64
    for metric, mean in report.items.groupby("metric")["value"].mean().items():
        assert mean == pytest.approx(chance[metric], abs=0.2)  # untrained


FLICKR30K_ALL_TRUTH = {number: [f"caption {place} of {number}" for place in range(5)] for number in range(24)}


def raw(folder: Path) -> Path:
    (folder / "flickr30k-images").mkdir(parents=True)
    for number in FLICKR30K_ALL_TRUTH:
        (folder / "flickr30k-images" / f"{number}.jpg").write_bytes(photo(number))
    lines = [
        f"{number}.jpg#{place}\t{text}"
        for number, texts in FLICKR30K_ALL_TRUTH.items()
        for place, text in enumerate(texts)
    ]
    (folder / "results_20130124.token").write_text("\n".join(lines) + "\n")
    return folder


def on_hub(folder: Path) -> Path:
    columns = {
        "image": [photo(number) for number in FLICKR30K_ALL_TRUTH],
        "caption": list(FLICKR30K_ALL_TRUTH.values()),
    }
    names = {"filename": [f"{number}.jpg" for number in FLICKR30K_ALL_TRUTH], "split": ["train"] * 23 + ["test"]}
    return parquet(folder, "test-00000-of-00001", columns | names, images="image")


@pytest.mark.parametrize("layout", [raw, on_hub])
def test_known_scorers_on_images_of_every_split(tmp_path, layout):
    folder = layout(tmp_path / "flickr30k_all")
    scorers = (knowing(FLICKR30K_ALL_TRUTH), knowing(FLICKR30K_ALL_TRUTH, 0, 1), constant(24))
    perfect, inverted, ties = (means(run(FLICKR30K_ALL, folder, scorer)) for scorer in scorers)
    assert len(perfect) == 6 and set(perfect.values()) == {1}
    assert set(inverted.values()) == set(ties.values()) == {0}
    chance = run(FLICKR30K_ALL, folder, random(24)).items.groupby("metric")[["value", "chance"]].mean()
    assert chance["value"].to_numpy() == pytest.approx(chance["chance"].to_numpy(), abs=0.2)


def test_from_the_hub_all_images_are_its_test_split(tmp_path, monkeypatch):
    hub = HubOnDisk(monkeypatch, **{"lmms-lab/flickr30k": on_hub(tmp_path / "f")})
    assert len(run(FLICKR30K_ALL, None, knowing(FLICKR30K_ALL_TRUTH)).items) == 3 * 24 + 3 * 120
    assert hub.asked == [("lmms-lab/flickr30k", {"split": "test", "revision": None})]


def test_the_suite_has_the_test_images_only():
    assert FLICKR30K in suite("general") and FLICKR30K_ALL not in suite("general")


COCO_CAPTION_CHOICE_IMAGES = 40
COCO_CAPTION_CHOICE_METRICS = ["caption image choice of 2", "caption image choice of 10"]


def write_coco_2017(folder: Path, texts: Sequence[str] | None = None) -> Path:
    """COCO val2017 as its authors publish it, with two captions an image, or one of these."""
    (folder / "val2017").mkdir(parents=True)
    for number in range(COCO_CAPTION_CHOICE_IMAGES):
        (folder / "val2017" / f"{number}.jpg").write_bytes(photo(number))
    images = [{"id": number, "file_name": f"{number}.jpg"} for number in range(COCO_CAPTION_CHOICE_IMAGES)]
    captions = [
        {"image_id": n, "caption": text}
        for n in range(COCO_CAPTION_CHOICE_IMAGES)
        for text in ([texts[n]] if texts else [f"first {n}", f"second {n}"])
    ]
    (folder / "captions_val2017.json").write_text(json.dumps({"images": images, "annotations": captions}))
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_coco_2017(tmp_path)


def test_scorers_against_chance_coco_caption_choice(folder):
    first = {number: [f"first {number}"] for number in range(COCO_CAPTION_CHOICE_IMAGES)}
    perfect = run(COCO_CAPTION_CHOICE, folder, knowing(first))
    assert means(perfect) == {("all", metric): 1.0 for metric in COCO_CAPTION_CHOICE_METRICS}
    assert perfect.items.groupby("metric")["chance"].first().to_dict() == dict(
        zip(COCO_CAPTION_CHOICE_METRICS, (0.5, 0.1), strict=True)
    )
    inverted = run(COCO_CAPTION_CHOICE, folder, knowing(first, right=0.0, wrong=1.0))
    same = run(COCO_CAPTION_CHOICE, folder, constant(COCO_CAPTION_CHOICE_IMAGES))
    assert set(means(inverted).values()) == set(means(same).values()) == {0.0} and same.items["tie"].all()
    second = {number: [f"second {number}"] for number in range(COCO_CAPTION_CHOICE_IMAGES)}
    assert set(means(run(COCO_CAPTION_CHOICE, folder, knowing(second))).values()) == {0.0}
    drawn = run(COCO_CAPTION_CHOICE, folder, random(COCO_CAPTION_CHOICE_IMAGES)).items
    for metric, chance in zip(COCO_CAPTION_CHOICE_METRICS, (0.5, 0.1), strict=True):
        values = drawn.loc[drawn["metric"] == metric, "value"]
        assert values.mean() == pytest.approx(
            chance, abs=4 * (chance * (1 - chance) / COCO_CAPTION_CHOICE_IMAGES) ** 0.5
        )
