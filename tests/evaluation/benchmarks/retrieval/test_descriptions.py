"""Retrieval by whole descriptions, in each layout of its sets (about 2 s)."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks.retrieval.descriptions import (
    DCI,
    DOCCI,
    DOCCI_FULL,
    IMAGEINWORDS,
    IMAGEINWORDS_FULL,
    URBAN1K,
    rejoin,
    whole,
)
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import NO_IMAGE
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Folders, Unavailable
from tests.evaluation.benchmarks.oracle import HubOnDisk, constant, knowing, parquet, photo, random, run
from tests.evaluation.encoders import items, photos

PHOTOS = 12


def description(number: int) -> str:
    return f"A red cube is {number}.5 m high.\nIt stands on grass {number}. "


def docci(folder: Path) -> Path:
    photos(folder / "images", {f"{number}.jpg": number for number in range(PHOTOS)})
    split = ["test"] * PHOTOS + ["train"]
    rows = [
        {"example_id": f"t{number}", "split": split[number], "image_file": f"{number}.jpg"}
        | {"description": description(number)}
        for number in range(PHOTOS + 1)
    ]
    (folder / "docci_descriptions.jsonlines").write_text("\n".join(map(json.dumps, rows)))
    return folder


def docci_on_hub(folder: Path) -> Path:
    columns = {
        "image_file": [photo(number) for number in range(PHOTOS)],
        "description": [description(number) for number in range(PHOTOS)],
    }
    return parquet(folder, "test-00000-of-00001", columns, images="image_file")


def imageinwords(folder: Path) -> Path:
    parts = {"DOCCI_Test": ("image", "docci", "{}"), "IIW-400": ("image/key", "docci_aar", "{}")}
    for place, (part, (field, images, name)) in enumerate({**parts, "DCI_Test": ("image", "dci", "{}.jpg")}.items()):
        own = range(4 * place, 4 * place + 4)
        photos(folder / images, {f"{number}.jpg": number for number in own})
        lines = [json.dumps({field: name.format(number), "IIW": description(number)}) for number in own]
        (folder / part).mkdir(parents=True)
        (folder / part / "data.jsonl").write_text("\n".join(lines))
    return folder


def dci(folder: Path) -> Path:
    photos(folder / "photos", {f"sa_{number}.jpg": number for number in range(PHOTOS)})
    (folder / "annotations").mkdir()
    for number in range(PHOTOS):
        short, _, extra = description(number).partition("\n")
        entry = {"image": f"sa_{number}.jpg", "short_caption": short, "extra_caption": extra, "mask_data": {}}
        (folder / "annotations" / f"{number}.json").write_text(json.dumps(entry))
    names = [f"{number}.json" for number in range(PHOTOS)]
    (folder / "splits.json").write_text(json.dumps({"train": names[:8], "valid": names[8:10], "test": names[10:]}))
    return folder


def urban1k(folder: Path) -> Path:
    """The second line of a caption is not read, as in Long-CLIP's script."""
    photos(folder / "image", {f"{number}.jpg": number for number in range(PHOTOS)})
    (folder / "caption").mkdir()
    for number in range(PHOTOS):
        (folder / "caption" / f"{number}.txt").write_text(f"A street, {number}. A bus.\nMore.\n", encoding="utf-8")
    return folder


def urban1k_packed(folder: Path) -> Path:
    plain = urban1k(folder / "plain")
    with zipfile.ZipFile(folder / "Urban1k.zip", "w") as archive:
        for file in sorted(plain.rglob("*.*")):
            archive.write(file, Path("Urban1k") / file.relative_to(plain))
        archive.writestr("__MACOSX/._1.txt", "not one of them")
    return folder


WHOLE = {number: whole(description(number)) for number in range(PHOTOS)}
REJOINED = {number: rejoin(description(number)) for number in range(PHOTOS)}
STREETS = {number: [f"A street, {number}. A bus."] for number in range(PHOTOS)}
FORMS = [
    (DOCCI_FULL, docci, WHOLE),
    (DOCCI_FULL, docci_on_hub, WHOLE),
    (IMAGEINWORDS_FULL, imageinwords, REJOINED),
    (DCI, dci, REJOINED),
    (URBAN1K, urban1k, STREETS),
    (URBAN1K, urban1k_packed, STREETS),
]


@pytest.mark.parametrize(("benchmark", "layout", "true"), FORMS, ids=lambda value: getattr(value, "__name__", None))
def test_scorers_against_chance(benchmark, layout, true, tmp_path):
    (tmp_path / "set").mkdir()
    folder = layout(tmp_path / "set")
    perfect = run(benchmark, folder, knowing(true)).items
    assert perfect["value"].eq(1).all() and len(perfect) == 6 * PHOTOS
    for encoder in (knowing(true, 0, 1), constant(PHOTOS)):
        assert run(benchmark, folder, encoder).items["value"].eq(0).all()
    drawn = run(benchmark, folder, random(PHOTOS)).items
    for _, part in drawn.groupby("metric"):
        chance = part["chance"].iloc[0]
        assert part["value"].mean() == pytest.approx(chance, abs=4 * (chance * (1 - chance) / PHOTOS) ** 0.5)


def test_a_whole_text_is_as_it_is_written_or_as_lotlip_joins_it():
    assert whole(" It is 3.5 m high.\nIt is red. ") == ["It is 3.5 m high.\nIt is red."]
    assert rejoin(" It is 3.5 m high.\nIt is red. ") == ["It is 3. 5 m high. It is red"]


@pytest.mark.parametrize(
    ("cut", "full", "layout"), [(DOCCI, DOCCI_FULL, docci), (IMAGEINWORDS, IMAGEINWORDS_FULL, imageinwords)]
)
def test_one_folder_serves_sentences_and_whole_texts(cut, full, layout, tmp_path):
    folders = Folders(own={cut.name: layout(tmp_path / "set")})
    counts = [len(texts) for benchmark in (cut, full) for texts in load_items(benchmark, folders).rows["captions"]]
    assert counts == [3] * PHOTOS + [1] * PHOTOS


def test_texts_that_a_text_tower_cuts_are_counted_and_noted(tmp_path, clip):
    folder = docci(tmp_path / "set")
    lines = [json.loads(line) for line in (folder / "docci_descriptions.jsonlines").read_text().splitlines()]
    for number, line in enumerate(lines):
        line["description"] = f"cube {number}" + " and a cube" * 40 * (number < 3)
    (folder / "docci_descriptions.jsonlines").write_text("\n".join(map(json.dumps, lines)))
    evaluator = Evaluator(log=lambda line: None)
    evaluator.load([DOCCI_FULL], Folders(own={"docci": folder}))
    evaluator(Embedder(clip))
    assert [note for note in evaluator.notes if note.startswith("docci_full: 3 texts")]


def test_each_comes_from_where_it_is_published(tmp_path, monkeypatch):
    (tmp_path / "zip").mkdir()
    asked = []

    def repository(repo, patterns, revision):
        asked.append((repo, patterns[0], revision))
        return urban1k_packed(tmp_path / "zip")

    monkeypatch.setattr(hub, "repository", repository)
    assert len(items(URBAN1K, None).rows) == PHOTOS
    assert asked == [("BeichenZhang/Urban1k", "Urban1k.zip", "953fcf1d1a3bde031d9424a91a0154e594b5a586")]
    disk = HubOnDisk(monkeypatch, **{"nicolollo/docci": docci_on_hub(tmp_path / "docci")})
    assert len(items(DOCCI_FULL, None).rows) == PHOTOS and disk.asked[0][1]["split"] == "test"
    for benchmark, said in (
        (DCI, "dci.tar.gz.*--data dci=DIR"),
        (IMAGEINWORDS_FULL, "SA-1B.*--data imageinwords=FOLDER"),
    ):
        with pytest.raises(Unavailable, match=said):
            load_items(benchmark)


def test_what_is_missing_is_left_out_or_named(tmp_path):
    folder = dci(tmp_path / "dci")
    (folder / "photos" / "sa_3.jpg").unlink()
    assert items(DCI, folder).left_out == {NO_IMAGE: 1}
    (folder / "annotations" / "4.json").write_text('{"image": "sa_4.jpg"}')
    with pytest.raises(ValueError, match="annotations/4.json: .*'short_caption', 'extra_caption'"):
        items(DCI, folder)
    streets = urban1k(tmp_path / "streets")
    (streets / "image" / "1.jpg").unlink()
    (streets / "caption" / "2.txt").write_text("")
    assert sum(items(URBAN1K, streets).left_out.values()) == 2
    (streets / "caption" / "2.txt").write_bytes(b"\xff\xfe caf\xe9")
    with pytest.raises(ValueError, match="caption/2.txt: .*UTF-8"):
        items(URBAN1K, streets)
