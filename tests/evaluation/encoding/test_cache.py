"""Cached embeddings are those of the model, found again by another process, whatever was killed before."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoProcessor

from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.store import KEY_BYTES, Table
from tests import tiny

TEXTS = tiny.captions()[:20]
LONG = " and ".join(["a red cube on a blue ball"] * 9)


def keys_of(*numbers: int) -> list[bytes]:
    return [number.to_bytes(KEY_BYTES, "big") for number in numbers]


def vectors_of(*numbers: int) -> np.ndarray:
    angles = np.array(numbers, dtype=np.float32)[:, None] * np.float32(0.1)
    return np.concatenate([np.cos(angles), np.sin(angles), np.zeros((len(numbers), 2), np.float32)], axis=1)


def add_numbers(store: Table, *numbers: int) -> None:
    store.add(keys_of(*numbers), vectors_of(*numbers), np.array(numbers) % 2 == 1, own=True)


def test_what_was_written_is_found_again(tmp_path):
    store = EmbeddingCache(tmp_path).store({"model": "a"})
    add_numbers(store, 3, 1, 2)
    store.flush()
    add_numbers(store, 7)
    store.flush()
    again = EmbeddingCache(tmp_path).store({"model": "a"})
    assert keys_of(7)[0] in again and keys_of(4)[0] not in again
    vectors, flags, there = again.look_up(keys_of(2, 7, 3, 2), 4)
    assert (vectors == vectors_of(2, 7, 3, 2)).all() and flags.tolist() == [False, True, True, False]
    assert there.all()
    other = EmbeddingCache(tmp_path).store({"model": "b"})
    assert keys_of(7)[0] not in other
    assert [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*/fingerprint.json"))]


def test_what_was_not_written_is_not_there(tmp_path):
    store = EmbeddingCache(tmp_path).store({})
    add_numbers(store, 1)
    assert keys_of(1)[0] not in EmbeddingCache(tmp_path).store({})
    assert store.look_up(keys_of(9, 1), 4)[2].tolist() == [False, True]


def test_a_broken_file_counts_as_absent(tmp_path):
    store = EmbeddingCache(tmp_path).store({})
    for number in (1, 2):
        add_numbers(store, number)
        store.flush()
    broken = sorted(store.folder.glob("*.safetensors"))[0]
    broken.write_bytes(broken.read_bytes()[:-5])
    (store.folder / ".half.safetensors.123").write_bytes(b"half")
    cache = EmbeddingCache(tmp_path)
    again = cache.store({})
    assert sum(key in again for key in keys_of(1, 2)) == 1
    assert not broken.exists() and "1 damaged files" in cache.notes[0]


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_a_second_run_loads_no_weights(name, tmp_path):
    folder = getattr(tiny, name)(tmp_path / "model")
    pictures = [tiny.image(seed) for seed in range(5)]
    plain = Embedder(folder, device="cpu", batch_size=4)
    first = Embedder(folder, device="cpu", batch_size=4, cache=EmbeddingCache(tmp_path / "cache"))
    one = first.images(pictures), first.texts([*TEXTS, LONG])
    again = Embedder(folder, device="cpu", batch_size=4, cache=EmbeddingCache(tmp_path / "cache"))
    two = again.images(pictures[::-1]), again.texts([LONG, *TEXTS[::-1]])
    assert again.encoded_images == again.encoded_texts == 0 and again._backbone is None
    assert (one[0] == plain.images(pictures)).all() and (one[0][::-1] == two[0]).all()
    assert (one[1].vectors[::-1] == two[1].vectors).all()
    assert one[1].truncated == two[1].truncated == 1


def test_only_what_is_new_is_encoded(clip, tmp_path):
    embedder = Embedder(clip, device="cpu", cache=EmbeddingCache(tmp_path))
    embedder.texts(TEXTS[:5])
    embedder.texts(TEXTS)
    assert embedder.encoded_texts == len(TEXTS)


def test_other_weights_other_pixels_or_another_tokenizer_are_other_embeddings(clip, tmp_path):
    def count_encoded(folder) -> tuple[int, int]:
        embedder = Embedder(folder, device="cpu", cache=EmbeddingCache(tmp_path / "cache"))
        embedder.images([tiny.image(0)]), embedder.texts(TEXTS[:1])
        return embedder.encoded_images, embedder.encoded_texts

    assert count_encoded(clip) == (1, 1) and count_encoded(clip) == (0, 0)
    moved = shutil.copytree(clip, tmp_path / "moved")
    assert count_encoded(moved) == (0, 0)
    processor = AutoProcessor.from_pretrained(clip)
    processor.image_processor.image_mean = [0.5, 0.5, 0.5]
    processor.save_pretrained(moved)
    assert count_encoded(moved) == (1, 0)
    model = AutoModel.from_pretrained(clip)
    model.logit_scale.data += 1
    model.save_pretrained(moved)
    assert count_encoded(moved) == (1, 1)


def test_another_configuration_of_the_same_weights_is_another_model(clip, tmp_path):
    folder = shutil.copytree(clip, tmp_path / "model")
    embedder = Embedder(folder, device="cpu", cache=EmbeddingCache(tmp_path / "cache"))
    before = embedder.texts(TEXTS).vectors
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["hidden_act"] = "gelu"
    (folder / "config.json").write_text(json.dumps(config))
    two = Embedder(folder, device="cpu", cache=EmbeddingCache(tmp_path / "cache"))
    assert not np.allclose(two.texts(TEXTS).vectors, before) and two.encoded_texts == len(TEXTS)


def test_files_that_change_under_an_open_model_do_not_reach_the_cache(clip, tmp_path):
    folder = shutil.copytree(clip, tmp_path / "model")
    embedder = Embedder(folder, device="cpu", cache=EmbeddingCache(tmp_path / "cache"))
    model = AutoModel.from_pretrained(folder)
    model.logit_scale.data += 1
    model.save_pretrained(folder)
    with pytest.raises(ValueError, match="files changed"):
        embedder.texts(TEXTS)


def test_half_precision_weights_are_encoded_in_fp32(tmp_path):
    folder = tiny.clip(tmp_path / "half", dtype=torch.float16)
    vectors = Embedder(folder, device="cpu").texts(TEXTS).vectors
    full = Embedder(AutoModel.from_pretrained(folder, dtype=torch.float32)).texts(TEXTS).vectors
    assert (vectors == full).all()


def test_released_memory_comes_back_when_it_is_needed(clip, tmp_path):
    embedder = Embedder(clip, device="cpu", cache=EmbeddingCache(tmp_path))
    before = embedder.texts(TEXTS).vectors
    embedder.release()
    assert embedder._backbone is None and not embedder.cache._stores
    assert (embedder.texts(TEXTS).vectors == before).all() and embedder.encoded_texts == len(TEXTS)


def test_a_module_is_not_cached_on_disk(clip, tmp_path):
    model = AutoModel.from_pretrained(clip)
    with pytest.raises(ValueError, match="cache: .*module"):
        Embedder(model, cache=EmbeddingCache(tmp_path))
    embedder = Embedder(model, cache=EmbeddingCache())
    embedder.texts(TEXTS), embedder.texts(TEXTS)
    assert embedder.encoded_texts == len(TEXTS)


WRITER = """
import sys, numpy as np
from hfcomp.evaluation.encoding.cache import EmbeddingCache
store = EmbeddingCache(sys.argv[1]).store({})
for number in range(10**6):
    key = int(sys.argv[2]) * 10**7 + number
    vector = np.eye(1, 512, number % 512, dtype=np.float32)
    store.add([key.to_bytes(16, "big")], vector, np.zeros(1, bool), own=True)
    store.flush()
    print(number, flush=True)
"""


def test_two_writers_and_a_kill_leave_whole_files(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in "01"]
    done = [[], []]
    for number, writer in enumerate(writers):
        while len(done[number]) < 30:
            done[number].append(int(writer.stdout.readline()))
    time.sleep(0.05)
    for writer in writers:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    cache = EmbeddingCache(tmp_path)
    store = cache.store({})
    for writer, numbers in enumerate(done):
        keys = [(writer * 10**7 + number).to_bytes(16, "big") for number in numbers]
        vectors, _, there = store.look_up(keys, 512)
        assert there.all() and (vectors == np.eye(512)[np.array(numbers) % 512]).all()
    assert not cache.notes
