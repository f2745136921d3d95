"""Built sets on the way into training: damage anywhere is named, and the fix that the error names works."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from datasets import Dataset

from hfcomp import cli
from hfcomp.data.built_sets import files as built_sets
from hfcomp.data.built_sets.verification import verify_set
from hfcomp.data.loading import load_training_set
from hfcomp.factory.runner import run_stages
from tests.factory import builds

SHARD = "data/train-00001-of-00003.parquet"


def build(folder: Path, dataset: Dataset | None = None) -> Path:
    dataset = builds.source() if dataset is None else dataset
    run_stages(dataset, builds.loud_stages(), folder, features=builds.FEATURES, rows_per_shard=4)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Never write into this folder."""
    return build(tmp_path_factory.mktemp("whole") / "out")


@pytest.fixture
def folder(whole, tmp_path) -> Path:
    return shutil.copytree(whole, tmp_path / "out")


def flip_bit(path: Path, content: bytes, bit: int) -> None:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)


@pytest.mark.parametrize("name", [SHARD, built_sets.MANIFEST, built_sets.SET_ASIDE_FILE])
def test_a_flipped_bit_is_an_error_that_names_the_file_or_changes_nothing(folder, name, monkeypatch):
    built = load_training_set(str(folder))
    rows = built.to_list()
    monkeypatch.setattr("hfcomp.data.sources.load_dataset", lambda *_, **__: built)  # takes a second each time
    path, refused = folder / name, 0
    content = path.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(content)), 200):
        flip_bit(path, content, bit)
        try:
            load_training_set(str(folder))
            verify_set(folder)
        except ValueError as error:
            assert str(path) in str(error), bit
            refused += 1
        else:
            assert name == built_sets.MANIFEST, bit  # the key of its checksum, or a space
    assert refused == 200 if name != built_sets.MANIFEST else refused > 150
    path.write_bytes(content)
    assert load_training_set(str(folder)).to_list() == rows


@pytest.mark.follows("hfcomp/data/built_sets/files.py", "expected {shard['sha256']} from {MANIFEST}. Remove it and")
def test_what_the_error_says_makes_the_file_anew(folder, whole):
    flip_bit(folder / SHARD, (folder / SHARD).read_bytes(), 999)
    with pytest.raises(ValueError, match=rf"{SHARD} .*damaged: .*sha256 \w{{64}}, .*\w{{64}} .*manifest.json"):
        load_training_set(str(folder))
    for inside in (folder / "data", folder / SHARD):
        with pytest.raises(ValueError, match=f"{SHARD} is damaged"):
            load_training_set(str(inside))
    assert len(load_training_set(str(folder / "data/train-00000-of-00003.parquet"))) == 4
    (folder / SHARD).unlink()
    with pytest.raises(ValueError, match=rf"{SHARD} .*missing: .*`hfcomp build` command "):
        load_training_set(str(folder))
    build(folder)
    assert builds.hashes(folder) == builds.hashes(whole)
    shutil.copy(folder / SHARD, folder / "data" / "train-more.parquet")
    with pytest.raises(ValueError, match=r"train-more.parquet .*not part"):
        load_training_set(str(folder))


def test_a_lost_manifest_is_named_as_that(folder):
    (folder / built_sets.MANIFEST).unlink()
    lost = r"manifest\.json .*missing.* backup"
    for use in (lambda: load_training_set(str(folder)), lambda: verify_set(folder)):
        with pytest.raises(ValueError, match=lost):
            use()
    with pytest.raises(ValueError, match=lost):
        build(folder)


def test_a_damaged_manifest_is_no_build_of_other_settings(folder):
    path = folder / built_sets.MANIFEST
    path.write_text(path.read_text().replace('"mark": "!"', '"mark": "?"'))
    for use in (load_training_set, lambda place: build(Path(place))):
        with pytest.raises(ValueError, match=r"manifest\.json .*damaged: .*sha256"):
            use(str(folder))


def test_a_manifest_of_something_else_is_none_of_ours(tmp_path):
    builds.source().remove_columns("image").to_parquet(tmp_path / "rows.parquet")
    for content in ('{"name": "a page", "icons": []}', "not JSON"):
        (tmp_path / built_sets.MANIFEST).write_text(content)
        assert len(load_training_set(str(tmp_path))) == 10
        with pytest.raises(ValueError, match=r"other files \(manifest.json|choose another|Choose an"):
            build(tmp_path)
        with pytest.raises(ValueError, match="not built by `hfcomp build`"):
            verify_set(tmp_path)


def test_files_are_read_once_and_again_when_they_change(folder, monkeypatch):
    read = []
    original = built_sets.file_hash
    monkeypatch.setattr(built_sets, "file_hash", lambda path: read.append(path.name) or original(path))
    built_sets.checked_shards(folder)
    built_sets.checked_shards(folder)
    assert len(read) == 3
    content = (folder / SHARD).read_bytes()
    (folder / SHARD).unlink()
    (folder / SHARD).write_bytes(content)
    built_sets.checked_shards(folder)
    assert len(read) == 4
    monkeypatch.setenv("LOCAL_RANK", "1")  # the first process of the machine has checked them
    flip_bit(folder / SHARD, content, 5)
    assert len(built_sets.checked_shards(folder)) == 3


def test_verify_prints_a_line_a_file_and_ends_with_1_at_a_damaged_one(folder, capsys):
    cli.main(["build", "verify", str(folder)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["ok  manifest.json", "ok  data/train-00000-of-00003.parquet  4 rows", f"ok  {SHARD}  3 rows"]
    assert lines[-1].startswith("9 rows in 3 files")
    flip_bit(folder / SHARD, (folder / SHARD).read_bytes(), 77)
    with pytest.raises(SystemExit, match=f"^error: .*{SHARD} .*damaged: .*`hfcomp build`"):
        cli.main(["build", "verify", str(folder)])
    assert capsys.readouterr().out.splitlines() == lines[:2]


def test_an_archive_that_was_cut_is_not_loaded_as_fewer_rows(tmp_path):
    from tests.evaluation.webdatasets import write_tar

    write_tar(tmp_path / "0.tar", {f"s{row}.{kind}": b"x" * 700 for row in range(4) for kind in ("txt", "json")})
    content = (tmp_path / "0.tar").read_bytes()
    for cut in range(512, 8 * 1536, 512):
        (tmp_path / "0.tar").write_bytes(content[:cut])
        with pytest.raises(ValueError, match="0.tar .*not a complete"):
            load_training_set(str(tmp_path))


def test_a_set_of_several_configurations_is_loaded_by_name_and_verified(whole, tmp_path):
    for name in ("high", "low"):
        shutil.copytree(whole, tmp_path / name)
    assert load_training_set(str(tmp_path), config="low").to_list() == load_training_set(str(whole)).to_list()
    with pytest.raises(ValueError, match="found .*None.*high, low"):
        load_training_set(str(tmp_path))
    shutil.rmtree(tmp_path / "high")
    assert load_training_set(str(tmp_path)).num_rows == load_training_set(str(whole)).num_rows, "the only one"
    path = tmp_path / "low" / SHARD
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=str(path)):
        load_training_set(str(tmp_path), config="low")


@pytest.mark.follows(
    "hfcomp/data/built_sets/files.py",
    "{path} is missing or damaged: expected sha256 {expected} from {MANIFEST}. Remove it and",
)
def test_a_damaged_list_of_rows_that_were_set_aside_is_made_anew(folder, whole):
    (folder / built_sets.SET_ASIDE_FILE).write_text("{}\n")
    with pytest.raises(ValueError, match=r"missing or damaged: .*`hfcomp build` command "):
        verify_set(folder)
    (folder / built_sets.SET_ASIDE_FILE).unlink()
    build(folder)
    assert builds.hashes(folder) == builds.hashes(whole)


def test_a_broken_manifest_is_not_a_missing_one(folder, tmp_path):
    path = folder / built_sets.MANIFEST
    content = path.read_bytes()
    (folder / built_sets.SET_ASIDE_FILE).unlink()  # by which the folder is known otherwise
    for damaged in (content[: len(content) // 2], content.replace(b'"rows": 9', b'"rows": 8'), content[1:]):
        path.write_bytes(damaged)
        for use in (built_sets.read_manifest, verify_set, lambda place: load_training_set(str(place))):
            with pytest.raises(ValueError, match=rf"{path}(: not JSON| is damaged)"):
                use(folder)
    path.write_text('{"name": "a page"}')
    with pytest.raises(ValueError, match=r"not built by .*manifest.json"):
        verify_set(folder)
