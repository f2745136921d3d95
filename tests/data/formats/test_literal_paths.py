"""Folders with `[`, `]`, `*` and `?` in their names: every loader reads their own files, not those of others."""

from __future__ import annotations

import io
import json
import tarfile

import datasets
import pytest

from hfcomp import cli
from hfcomp.data import load_training_set
from hfcomp.data.formats.caption_files import read_captions
from hfcomp.data.loading import contract_rows, load_training_stream
from hfcomp.evaluation.benchmarks.own import OwnData
from hfcomp.evaluation.sources import HubData
from hfcomp.evaluation.spec import Folders
from tests import tiny

ODD = "photos [a] 100*?"
CAPTIONS = ["a red ball", "a blue ball"]


@pytest.fixture
def folder(tmp_path):
    """The folder, and beside it what its name as a pattern would find."""
    for name in (ODD, "photos a 100", "photos a 1000x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "decoy.txt").touch()
    (tmp_path / ODD / "decoy.txt").unlink()
    return tmp_path / ODD


def save_images(folder, names=("0.png", "1.png")):
    folder.mkdir(exist_ok=True, parents=True)
    for index, name in enumerate(names):
        tiny.image(index).save(folder / name)


def columns(path="{}.png"):
    return {"image": [path.format(index) for index in range(2)], "caption": CAPTIONS}


def write_csv(folder):
    save_images(folder)
    datasets.Dataset.from_dict(columns()).to_csv(folder / "rows.csv")
    return folder / "rows.csv"


def write_jsonl(folder):
    save_images(folder)
    datasets.Dataset.from_dict(columns()).to_json(folder / "rows.jsonl")
    return folder / "rows.jsonl"


def write_parquet(folder):
    save_images(folder)
    datasets.Dataset.from_dict(columns()).to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def write_table_beside_images(folder):
    write_csv(folder)
    return folder


def write_metadata(folder):
    save_images(folder)
    datasets.Dataset.from_dict({"file_name": ["0.png", "1.png"], "caption": CAPTIONS}).to_csv(folder / "metadata.csv")
    return folder


def write_texts_beside_images(folder):
    save_images(folder)
    for index, caption in enumerate(CAPTIONS):
        (folder / f"{index}.txt").write_text(caption)
    return folder


def write_archive(folder):
    with tarfile.open(folder / "0.tar", "w") as archive:
        for index, caption in enumerate(CAPTIONS):
            stored = io.BytesIO()
            tiny.image(index).save(stored, "PNG")
            for ending, content in (("png", stored.getvalue()), ("txt", caption.encode())):
                member = tarfile.TarInfo(f"{index}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return folder / "0.tar"


def write_shards(folder):
    write_archive(folder)
    return folder


def write_hub_layout(folder):
    (folder / "data").mkdir()
    save_images(folder)
    names = columns(str(folder / "{}.png"))
    datasets.Dataset.from_dict(names).to_parquet(folder / "data/train-00000-of-00001.parquet")
    return folder


def write_hub_layout_with_a_card(folder):
    write_hub_layout(folder)
    (folder / "data").rename(folder / "rows")
    card = "---\nconfigs:\n- config_name: own\n  data_files:\n  - split: train\n    path: rows/*.parquet\n---\n"
    (folder / "README.md").write_text(card)
    return folder


def write_coco(folder):
    save_images(folder / "val2017", ("000000000001.png", "000000000002.png"))
    (folder / "annotations").mkdir()
    content = {
        "images": [{"id": number, "file_name": f"{number:012}.png"} for number in (1, 2)],
        "annotations": [{"image_id": number, "caption": text} for number, text in enumerate(CAPTIONS, start=1)],
    }
    (folder / "annotations/captions_val2017.json").write_text(json.dumps(content))
    return folder


def write_saved(folder):
    rows = datasets.Dataset.from_dict({"image": [tiny.image(0), tiny.image(1)], "caption": CAPTIONS})
    rows.save_to_disk(folder / "saved")
    return folder / "saved"


WRITERS = [value for name, value in list(globals().items()) if name.startswith("write_")]
NAMES = {write_archive: {"image": "png", "caption": "txt"}, write_shards: {"image": "png", "caption": "txt"}}
SPLITS = {write_coco: "val2017"}


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__.removeprefix("write_"))
def test_every_loader_reads_the_folder_itself(write, folder):
    place = str(write(folder))
    rows = load_training_set(place, split=SPLITS.get(write, "train"), column_names=NAMES.get(write))
    captions = [text[0] if isinstance(text, list) else text for text in rows["caption"]]
    assert captions == CAPTIONS
    images = rows.cast_column("image", datasets.Image())
    assert [image.getpixel((0, 0)) for image in images["image"]] == [
        tiny.image(index).getpixel((0, 0)) for index in range(2)
    ]


@pytest.mark.parametrize("write", [write_csv, write_hub_layout, write_shards, write_metadata])
def test_an_evaluation_of_own_rows_reads_it_too(write, folder):
    own = OwnData(str(write(folder)), column_names=NAMES.get(write))
    assert own.remote(Folders()).rows["caption"][:] == CAPTIONS


@pytest.mark.parametrize("write", [write_hub_layout, write_shards])
def test_a_stream_reads_it_too(write, folder):
    place = str(write(folder))
    rows = contract_rows(load_training_stream(place), place, NAMES.get(write))
    assert [row["caption"] for row in rows] == CAPTIONS


def test_a_file_of_captions_is_read_from_it(folder):
    (folder / "new.csv").write_text("key,caption\n7,a dog\n")
    assert read_captions(folder / "new.csv").captions == {"7": "a dog"}


def test_a_built_set_is_written_to_it_and_read_from_it(folder):
    source = write_csv(folder)
    given = ["--source", str(source), "--output", str(folder / "built"), "--kinds", "keyword:color"]
    cli.main(["build", "negatives", *given])
    rows = load_training_set(str(folder / "built"))
    assert rows["caption"][:] == CAPTIONS and all(map(any, rows["negative_captions"]))


def test_a_benchmark_in_the_hubs_layout_is_read_from_a_data_dir_with_such_a_name(folder):
    (folder / "pairs").mkdir()
    write_hub_layout(folder / "pairs")
    data = HubData("some/pairs", {"image": "image", "caption": "caption"}, {"all": {"split": "train"}})
    items = data.local(folder / "pairs", Folders(folder))
    assert items.rows["caption"][:] == CAPTIONS
