"""Sets of images and captions under other names than hfcomp's, in every format that the documentation lists."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from pathlib import Path

import datasets
import numpy as np
import pytest

from hfcomp.data import load_training_set
from hfcomp.data.images import decode_image
from hfcomp.data.known_names import parse_column_names
from hfcomp.data.loading import TrainingRows, contract_rows, load_training_stream
from hfcomp.trainers.info_nce import InfoNCEConfig, InfoNCETrainer
from tests import tiny

CAPTIONS = ['a "red" cube, alone', "a blue ball", "a green cone"]
FILES = [f"photos/{index}.png" for index in range(3)]
OWN = {"filepath": FILES, "title": CAPTIONS}
NAMES = {"image": "filepath", "caption": "title"}


def write_images(folder, names=FILES):
    for index, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        tiny.image(index).save(folder / name)


def write_tsv(folder):
    path = folder / "pairs.tsv"
    path.write_text("filepath\ttitle\n" + "".join(map("{}\t{}\n".format, FILES, CAPTIONS)), encoding="utf-8")
    return path, NAMES


def write_marked_csv(folder):
    """Writes the file as Excel does, with a byte order mark."""
    path = folder / "pairs.csv"
    datasets.Dataset.from_dict(OWN).to_csv(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    return path, NAMES


def write_csv_gz(folder):
    path, _ = write_marked_csv(folder)
    (folder / "pairs.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    return folder / "pairs.csv.gz", NAMES


def write_jsonl(folder):
    datasets.Dataset.from_dict(OWN).to_json(folder / "pairs.jsonl")
    return folder / "pairs.jsonl", NAMES


def write_json(folder):
    (folder / "pairs.json").write_text(json.dumps(datasets.Dataset.from_dict(OWN).to_list()))
    return folder / "pairs.json", NAMES


def write_parquet(folder):
    datasets.Dataset.from_dict(OWN).to_parquet(folder / "pairs.parquet")
    return folder / "pairs.parquet", NAMES


def write_bytes_of_pandas(folder):
    """Images as bytes, without the types of `datasets`."""
    content = [(folder / name).read_bytes() for name in FILES]
    datasets.Dataset.from_dict({"jpg": content, "txt": CAPTIONS}).to_pandas().to_parquet(folder / "pairs.parquet")
    return folder / "pairs.parquet", {"image": "jpg", "caption": "txt"}


def write_folder_of_parquet(folder):
    """A repository's folder, with names that start at its root."""
    (folder / "data").mkdir()
    datasets.Dataset.from_dict(OWN).to_parquet(folder / "data/train-00000-of-00001.parquet")
    return folder, NAMES


def write_folder_with_tables(folder):
    """Each split beside its own photographs."""
    for split in ("train", "test"):
        (folder / "set" / split).mkdir(parents=True)
        write_images(folder / "set" / split)
        datasets.Dataset.from_dict(OWN).to_csv(folder / f"set/{split}/pairs.csv")
    return folder / "set", NAMES


def write_own_metadata(folder):
    path = folder / "metadata.csv"
    datasets.Dataset.from_dict(OWN).to_csv(path)
    return folder, NAMES


def write_metadata_of_datasets(folder):
    datasets.Dataset.from_dict({"file_name": FILES, "title": CAPTIONS}).to_json(folder / "metadata.jsonl")
    return folder, {"caption": "title"}


def write_table_beside_images(folder):
    """`datasets` would read the images alone."""
    return write_tsv(folder)[0].parent, NAMES


def write_saved(folder):
    datasets.Dataset.from_dict({**OWN, "filepath": [f"../{name}" for name in FILES]}).save_to_disk(folder / "saved")
    return folder / "saved", NAMES


def write_shards(folder):
    (folder / "shards").mkdir()
    with tarfile.open(folder / "shards/00000.tar", "w") as archive:
        for index, (name, caption) in enumerate(zip(FILES, CAPTIONS, strict=True)):
            for ending, content in (("png", (folder / name).read_bytes()), ("txt", caption.encode())):
                member = tarfile.TarInfo(f"{index:05d}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return folder / "shards", {"image": "png", "caption": "txt"}


def write_shard(folder):
    path, names = write_shards(folder)
    return path / "00000.tar", names


WRITERS = [value for name, value in list(globals().items()) if name.startswith("write_") and name != "write_images"]


ROOT = Path(__file__).resolve().parents[2]
DOCUMENTED = {
    "pairs.csv": write_marked_csv,
    "pairs.tsv": write_tsv,
    "pairs.csv.gz": write_csv_gz,
    "pairs.jsonl": write_jsonl,
    "pairs.json": write_json,
    "pairs.parquet": write_bytes_of_pandas,
    "folder/": write_table_beside_images,
    "folder/ with metadata": write_metadata_of_datasets,
    "shards/": write_shards,
    "set/": write_folder_of_parquet,
    "saved/": write_saved,
}
"""What writes the examples of the table in the documentation."""


def pixels_of_row(rows, row) -> np.ndarray:
    return np.asarray(decode_image(TrainingRows(rows, ["image"])[row]["image"]))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it has no say
    (tmp_path / "data").mkdir()
    write_images(tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__.removeprefix("write_"))
def test_own_names_of_any_format_become_images_and_captions(write, folder):
    path, names = write(folder)
    rows = load_training_set(str(path), column_names=names)
    assert rows["caption"][:] == CAPTIONS
    for row in range(3):
        assert np.array_equal(pixels_of_row(rows, row), np.asarray(tiny.image(row)))


def test_the_table_of_the_documentation_is_what_is_tested(folder):
    page = (ROOT / "docs/datasets.md").read_text()
    table = page.partition("| what you have |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\|(.*)\| `(.+)` \| `(.+)` \|$", table, re.MULTILINE)
    columns_of = {f"{path} with metadata" if "metadata.jsonl" in what else path: names for what, path, names in rows}
    assert columns_of.keys() == DOCUMENTED.keys()
    for name, write in DOCUMENTED.items():
        assert write in WRITERS and parse_column_names(columns_of[name]) == write(folder)[1], name


def test_the_code_of_the_documentation_makes_a_trainer(folder, clip, monkeypatch):
    write_tsv(folder)
    monkeypatch.chdir(folder)
    page = (ROOT / "docs/datasets.md").read_text().partition("\n## Loading\n")[2]
    code = page.partition("```python\n")[2].partition("```")[0]
    names: dict = {}
    exec(code.replace("openai/clip-vit-base-patch32", str(clip)), names)
    assert len(names["trainer"].train_dataset) == 3 and names["args"].learning_rate == 1e-6


@pytest.mark.parametrize("write", [write_folder_of_parquet, write_shards])
def test_a_stream_resolves_file_names_too(write, folder):
    path, names = write(folder)
    rows = contract_rows(load_training_stream(str(path)), str(path), names)
    records = list(rows)
    assert [row["caption"] for row in records] == CAPTIONS
    assert np.array_equal(np.asarray(decode_image(records[1]["image"])), np.asarray(tiny.image(1)))


def test_a_set_with_own_names_trains_and_its_images_are_those_of_its_folder(folder, clip, tmp_path):
    path, names = write_tsv(folder)
    args = InfoNCEConfig(
        output_dir=str(tmp_path / "run"), max_steps=2, per_device_train_batch_size=3, report_to="none", use_cpu=True
    )
    InfoNCETrainer(str(clip), args, load_training_set(str(path), column_names=names)).train()
    args.column_names = names  # rows that `datasets` has read: names start at the working directory
    rows = datasets.load_dataset("csv", data_files=str(path), sep="\t", split="train")
    with pytest.raises(FileNotFoundError, match="'image', row 0: .*/photos/0.png .*not exist"):
        InfoNCETrainer(str(clip), args, rows)
    InfoNCETrainer(str(clip), args, rows.map(lambda row: {"filepath": f"data/{row['filepath']}"})).train()


def test_missing_columns_are_proposed_in_a_form_that_loads(folder):
    path, names = write_tsv(folder)
    args = InfoNCEConfig(output_dir=str(folder / "run"), use_cpu=True)
    with pytest.raises(ValueError, match="needs .*columns 'image', 'caption'") as error:
        InfoNCETrainer.check_rows(load_training_set(str(path)), args)
    assert "--column_names image=filepath,caption=title, in Python column_names=" in str(error.value)
    copied = json.loads(str(error.value).partition("in Python column_names=")[2].rstrip("."))
    assert copied == names


def test_files_of_two_tables_with_one_name_are_refused(folder):
    for part in ("a", "b"):
        write_images(folder / "set" / part)
        datasets.Dataset.from_dict(OWN).to_csv(folder / "set" / part / "train.csv")
    message = r"'image', row 0: 'photos/0\.png' .*2 files, .*/a/photos/0.png .*/b/photos"
    with pytest.raises(ValueError, match=message):
        load_training_set(str(folder / "set"), column_names=NAMES)
    for index in range(3):
        (folder / f"set/b/photos/{index}.png").rename(folder / f"set/b/photos/{index}-b.png")
    lines = (folder / "set/b/train.csv").read_text().replace(".png", "-b.png")
    (folder / "set/b/train.csv").write_text(lines)
    rows = load_training_set(str(folder / "set"), column_names=NAMES)
    assert len(rows) == 6
    for row, name in enumerate(rows.cast_column("image", datasets.Image(decode=False))["image"]):
        assert np.array_equal(pixels_of_row(rows, row), np.asarray(tiny.image(row % 3))), name


def test_urls_of_a_set_are_images_that_are_fetched_where_that_is_allowed(folder):
    columns = {"url": ["https://example.com/a.png", None], "caption": ["a", "b"]}
    datasets.Dataset.from_dict(columns).to_parquet(folder / "cc3m.parquet")
    rows = load_training_set(str(folder / "cc3m.parquet"), column_names={"image": "url"})
    assert isinstance(rows.features["image"], datasets.Image)
    assert rows.cast_column("image", datasets.Image(decode=False))["image"][:] == [
        {"bytes": None, "path": "https://example.com/a.png"},
        None,
    ]


def test_lists_that_are_written_as_texts_become_lists(folder):
    """As in NegCLIP's table (Python) and in Flickr30k's of Karpathy's splits (JSON)."""
    path = folder / "negclip.tsv"
    rows = {
        "filepath": FILES[:2],
        "raw": ['["a cat", "a [red] dog"]', '["one"]'],
        "neg": ["['a', \"it's b\"]", "['c']"],
    }
    datasets.Dataset.from_dict(rows).to_csv(path, sep="\t")
    names = {"image": "filepath", "caption": "raw", "negative_captions": "neg"}
    loaded = load_training_set(str(path), column_names=names)
    assert loaded["caption"][:] == [["a cat", "a [red] dog"], ["one"]]
    assert loaded["negative_captions"][:] == [["a", "it's b"], ["c"]]
    (folder / "plain.csv").write_text("caption\n[a sign]\na dog\n")
    assert load_training_set(str(folder / "plain.csv"))["caption"][:] == ["[a sign]", "a dog"]


def test_a_table_without_rows_is_named(folder):
    (folder / "empty.tsv").write_text("filepath\ttitle\n")
    with pytest.raises(ValueError, match=r"empty\.tsv .*no rows"):
        load_training_set(str(folder / "empty.tsv"), column_names=NAMES)
