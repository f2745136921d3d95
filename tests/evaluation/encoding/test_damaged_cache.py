"""Whatever happens to the files of the cache: vectors are those that are found without it, and it is reported."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load, load_file, save, save_file

from hfcomp.evaluation.encoding import embed
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.store import checksum
from tests import tiny

TEXTS = tiny.captions()[:40]
PICTURES = [tiny.image(seed) for seed in range(6)]


@pytest.fixture(scope="module")
def whole(clip, tmp_path_factory):
    """A cache, and the vectors that it is of."""
    folder = tmp_path_factory.mktemp("whole") / "cache"
    return folder, encode_all(clip, folder)[0]


def encode_all(model, folder: Path | None) -> tuple[list[np.ndarray], EmbeddingCache, int]:
    cache = EmbeddingCache(folder)
    embedder = Embedder(model, device="cpu", batch_size=8, cache=cache)
    vectors = [embedder.images(PICTURES), embedder.texts(TEXTS).vectors]
    return vectors, cache, embedder.encoded_images + embedder.encoded_texts


def flip(path: Path, generator: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    path.write_bytes(content)


def rewritten(path: Path, change, *, signed: bool = False) -> None:
    """Other tensors under the same name; `signed` under the name that they would have."""
    tensors = load(path.read_bytes())
    change(tensors)
    save_file(tensors, path)
    if signed:
        path.rename(path.with_stem(checksum(path.read_bytes())))


def nan(tensors) -> None:
    tensors["vectors"][::2] = np.nan


def longer(tensors) -> None:
    tensors["vectors"][0] *= 2


def other_shape(tensors) -> None:
    tensors["vectors"] = tensors["vectors"][:, :-1].copy()


def fewer(tensors) -> None:
    tensors["vectors"] = tensors["vectors"][1:].copy()


def other_keys(tensors) -> None:
    tensors["keys"] = tensors["keys"][::-1].copy()


def flat_keys(tensors) -> None:
    tensors["keys"] = tensors["keys"].reshape(-1)


def without_vectors(tensors) -> None:
    del tensors["vectors"]


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "zeroed": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("no tensors at all"),
    "nan": lambda path: rewritten(path, nan),
    "signed nan": lambda path: rewritten(path, nan, signed=True),
    "signed longer": lambda path: rewritten(path, longer, signed=True),
    "signed other shape": lambda path: rewritten(path, other_shape, signed=True),
    "signed fewer": lambda path: rewritten(path, fewer, signed=True),
    "other keys": lambda path: rewritten(path, other_keys),
    "flat keys": lambda path: rewritten(path, flat_keys, signed=True),
    "without vectors": lambda path: rewritten(path, without_vectors, signed=True),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_encoded_again_reported_and_replaced(damage, clip, whole, tmp_path):
    folder = shutil.copytree(whole[0], tmp_path / "cache")
    files = list(folder.glob("*/*.safetensors"))
    for path in files:
        DAMAGE[damage](path)
    vectors, cache, number = encode_all(clip, folder)
    assert all((vector == expected).all() for vector, expected in zip(vectors, whole[1], strict=True))
    assert number == len(PICTURES) + len(set(TEXTS))
    (note,) = cache.notes
    assert note.startswith(f"embedding cache: {len(files)} damaged files")
    vectors, cache, number = encode_all(clip, folder)
    assert number == 0 and cache.notes == []
    assert all((vector == expected).all() for vector, expected in zip(vectors, whole[1], strict=True))


def test_no_bit_flip_changes_a_vector(clip, whole, tmp_path):
    generator = random.Random(0)
    for number in range(20):
        folder = shutil.copytree(whole[0], tmp_path / str(number))
        flip(generator.choice(sorted(folder.glob("*/*.safetensors"))), generator)
        vectors, cache, again = encode_all(clip, folder)
        assert all((vector == expected).all() for vector, expected in zip(vectors, whole[1], strict=True))
        assert again in (len(PICTURES), len(set(TEXTS))) and len(cache.notes) == 1


@pytest.mark.parametrize("content", [None, b"", b"\xff\x00", b"[]", b'{"torch": 1}'])
def test_the_fingerprint_is_for_readers_only(content, clip, whole, tmp_path):
    folder = shutil.copytree(whole[0], tmp_path / "cache")
    before = {path: path.read_bytes() for path in folder.glob("*/fingerprint.json")}
    for path in before:
        path.unlink() if content is None else path.write_bytes(content)
    vectors, cache, number = encode_all(clip, folder)
    assert number == 0 and cache.notes == []
    assert all((vector == expected).all() for vector, expected in zip(vectors, whole[1], strict=True))
    assert {path: path.read_bytes() for path in before} == before


def test_a_file_that_goes_while_it_is_in_use_is_encoded_again(clip, whole, tmp_path):
    folder = shutil.copytree(whole[0], tmp_path / "cache")
    embedder = Embedder(clip, device="cpu", batch_size=8, cache=EmbeddingCache(folder))
    embedder.texts(TEXTS[:1])
    for path in folder.glob("*/*.safetensors"):
        path.unlink()
    assert (embedder.texts(TEXTS).vectors == whole[1][1]).all() and embedder.cache.notes == []


@pytest.mark.parametrize("package", [torch, transformers])
def test_vectors_of_another_version_are_not_read(package, clip, whole, tmp_path, monkeypatch):
    folder = shutil.copytree(whole[0], tmp_path / "cache")
    monkeypatch.setattr(package, "__version__", f"{package.__version__}.1")
    assert encode_all(clip, folder)[2] == len(PICTURES) + len(set(TEXTS))
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize("where", ["under a file", "not a folder", "read only"])
def test_a_folder_that_cannot_be_written_costs_nothing_but_the_cache(
    where, clip, whole, tmp_path, monkeypatch, caplog
):
    (tmp_path / "file").write_text("")
    folder = {"under a file": tmp_path / "file" / "cache", "not a folder": tmp_path / "file"}.get(
        where, tmp_path / "c"
    )
    if where == "read only":  # permissions do not stop root
        shutil.copytree(whole[0], folder, ignore=shutil.ignore_patterns("*.safetensors"))

        def refuse(*_, **__):
            raise PermissionError(13, "Read-only file system")

        monkeypatch.setattr(os, "replace", refuse)
    vectors, cache, number = encode_all(clip, folder)
    assert number == len(PICTURES) + len(set(TEXTS))
    assert all((vector == expected).all() for vector, expected in zip(vectors, whole[1], strict=True))
    (note,) = cache.notes
    assert str(folder) in note and "is not writable" in note
    assert sum("is not writable" in record.message for record in caplog.records) == 1
    assert not list(tmp_path.rglob("*.part"))


def store_vectors(folder: Path, cache: EmbeddingCache, *numbers: int, age: float) -> list[Path]:
    """A file of one vector for each number, last used `age` seconds ago."""
    before = set(folder.glob("*/*.safetensors"))
    store = cache.store({"model": "m"})
    for number in numbers:
        store.add([number.to_bytes(16, "big")], np.eye(1, 512, number, dtype=np.float32), np.zeros(1, bool), own=True)
        store.flush()
    files = sorted(set(folder.glob("*/*.safetensors")) - before)
    for path in files:
        os.utime(path, (time.time() - age,) * 2)
    return files


def test_over_the_limit_the_files_that_were_not_used_for_longest_go(tmp_path):
    old = store_vectors(tmp_path, EmbeddingCache(tmp_path), 0, 1, age=3000)
    newer = store_vectors(tmp_path, EmbeddingCache(tmp_path), 2, 3, age=2000)
    size = old[0].stat().st_size
    again = EmbeddingCache(tmp_path, limit=10 * size)
    again.store({"model": "m"}).look_up([(0).to_bytes(16, "big")], 512)  # used now, whenever it was made
    (kept,) = [path for path in old if load_file(path)["keys"][0, -1] == 0]
    again = EmbeddingCache(tmp_path, limit=4 * size)
    own = store_vectors(tmp_path, again, 4, age=0)
    assert set(tmp_path.glob("*/*.safetensors")) == {kept, *newer, *own}
    (note,) = again.notes
    assert "least recently used" in note and re.search(r"HFCOMP_CACHE_LIMIT\): 1 \(", note)


def test_a_run_never_removes_what_it_uses_itself(tmp_path):
    cache = EmbeddingCache(tmp_path, limit=0)
    store = cache.store({"model": "m"})
    for number in range(3):
        store.add([number.to_bytes(16, "big")], np.eye(1, 512, number, dtype=np.float32), np.zeros(1, bool), own=True)
        store.flush()
    assert len(list(tmp_path.glob("*/*.safetensors"))) == 3
    assert "over the limit of 0 B" in cache.notes[0]


def test_files_in_use_by_others_are_not_called_this_runs_own(tmp_path):
    mine, other = EmbeddingCache(tmp_path, limit=0), EmbeddingCache(tmp_path, limit=10**9)
    store_vectors(tmp_path, other, 0, age=0)
    mine.trim()
    (note,) = mine.notes
    assert "this run's own" not in note and "in use" in note


def test_a_file_that_cannot_be_removed_still_counts(tmp_path, monkeypatch):
    old = store_vectors(tmp_path, EmbeddingCache(tmp_path), 0, 1, age=3000)
    cache = EmbeddingCache(tmp_path, limit=old[0].stat().st_size)

    def refuse(self):
        raise PermissionError(13, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    cache.trim()
    (note,) = cache.notes
    assert f"{2 * old[0].stat().st_size / 1000:.1f} kB remain, over the limit" in note


def test_two_containers_with_equal_process_ids_write_the_same_file(tmp_path, monkeypatch):
    first, second, replace = EmbeddingCache(tmp_path), EmbeddingCache(tmp_path), os.replace
    path = tmp_path / "0123456789abcdef" / "fingerprint.json"

    def late(source, target):
        monkeypatch.setattr(os, "replace", replace)
        second.write(path, b"{}")
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    first.write(path, b"{}")
    assert first.notes == second.notes == [] and path.read_bytes() == b"{}"
    assert os.listdir(path.parent) == [path.name]


def test_a_fingerprint_that_is_there_is_not_written_again(tmp_path, monkeypatch):
    EmbeddingCache(tmp_path).store({"model": "m"})
    (path,) = tmp_path.glob("*/fingerprint.json")
    os.utime(path, (0, 0))
    again = EmbeddingCache(tmp_path)
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("written again"))
    again.store({"model": "m"})
    assert time.time() - path.stat().st_mtime < 60


def test_what_a_killed_process_left_half_written_goes_after_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", lambda *_: None)  # killed before
    EmbeddingCache(tmp_path).store({"model": "m"})
    (folder,) = tmp_path.iterdir()
    assert len(os.listdir(folder)) == 1
    monkeypatch.undo()
    EmbeddingCache(tmp_path).store({"model": "m"})
    assert len(os.listdir(folder)) == 2  # it may still be at work
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    EmbeddingCache(tmp_path).store({"model": "m"})
    assert os.listdir(folder) == ["fingerprint.json"]


def test_nothing_but_the_cache_s_own_files_is_ever_removed(tmp_path):
    for name in ("models/clip", "0123456789abcdef"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "model.safetensors").write_bytes(save({"a": np.zeros(99)}))
        os.utime(tmp_path / name / "model.safetensors", (0, 0))
    store_vectors(tmp_path, EmbeddingCache(tmp_path, limit=0), 0, age=0)
    assert len(list(tmp_path.rglob("model.safetensors"))) == 2


def test_a_limit_that_is_no_size_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HFCOMP_CACHE_LIMIT", "much")
    with pytest.raises(ValueError, match="HFCOMP_CACHE_LIMIT: found 'much', .*20GB"):
        EmbeddingCache(tmp_path)
    assert EmbeddingCache().notes == []
    monkeypatch.setenv("HFCOMP_CACHE_LIMIT", "1.5 gb")
    assert EmbeddingCache(tmp_path).limit == 1_500_000_000


def test_an_older_way_of_encoding_is_not_read(clip, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(embed, "ENCODING_VERSION", 0)
    assert encode_all(clip, shutil.copytree(whole[0], tmp_path / "cache"))[2] == len(PICTURES) + len(set(TEXTS))
