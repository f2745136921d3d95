"""Hashes of images: what they call the same, on synthetic textures and on real photographs, and how they are kept."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hfcomp.data.overlap import image_hashes
from hfcomp.data.overlap.image_hashes import (
    FILE,
    MOST_BITS,
    HashStore,
    close_pairs,
    digest,
    file_key,
    hash_images,
    image_record,
    looks_alike,
)
from tests.data.photographs import crop_edges, recompress, resize, texture


def records(images):
    return np.stack([image_record(image) for image in images])


@pytest.mark.parametrize("count", ["_bit_count", "_count_by_table"])
def test_distances_are_those_of_a_plain_loop_over_bits(count, monkeypatch):
    monkeypatch.setattr(image_hashes, "_bit_count", getattr(image_hashes, count))
    monkeypatch.setattr(image_hashes, "BLOCK", 100)  # several blocks
    rng = np.random.default_rng(0)
    hashes, others = (rng.integers(2**64, size=(n, 4), dtype=np.uint64) for n in (30, 17))
    hashes[4], hashes[29] = others[16], ~others[3]  # 0 and all 256 bits
    expected = [
        (row, column, sum((int(a) ^ int(b)).bit_count() for a, b in zip(hashes[row], others[column], strict=True)))
        for row in range(30)
        for column in range(17)
    ]
    pairs = list(zip(*(part.tolist() for part in close_pairs(hashes, others, 115)), strict=True))
    assert pairs == [pair for pair in expected if pair[2] <= 115] and (4, 16, 0) in pairs
    assert len(close_pairs(hashes, others, 256)[0]) == 30 * 17
    assert [len(part) for part in close_pairs(hashes[:0], others, 9)] == [0, 0, 0]
    assert [len(part) for part in close_pairs(hashes, others[:0], 9)] == [0, 0, 0]


def test_a_copy_that_was_saved_resized_or_cropped_a_little_is_found_and_no_other():
    images = [texture(seed) for seed in range(12)]
    known = records(images)
    for copy in (
        [recompress(image, 50) for image in images],
        [resize(image, 90) for image in images],
        [crop_edges(image, 0.03) for image in images],
    ):
        nearest, bits = looks_alike(records(copy), known)
        assert nearest.tolist() == list(range(12)) and (bits <= MOST_BITS).all()
    others, _ = looks_alike(records([texture(seed) for seed in range(100, 140)]), known)
    assert (others == -1).all()


def test_images_without_contrast_do_not_look_alike():
    grey = [Image.new("RGB", (40, 40), (shade, shade, shade)) for shade in (90, 91)]
    noisy = [Image.fromarray(np.random.default_rng(seed).integers(90, 94, (40, 40, 3), np.uint8)) for seed in (0, 1)]
    assert (looks_alike(records([*grey, *noisy]), records([*grey, *noisy]))[0] == -1).all()


def test_equal_signs_of_other_brightness_are_not_the_same_photograph():
    image = texture(3)
    dark = Image.fromarray((np.asarray(image) // 3).astype(np.uint8))
    first, second = records([image]), records([dark])
    assert len(close_pairs(first["hash"], second["hash"], MOST_BITS)[0]) == 1
    assert looks_alike(first, second)[0].tolist() == [-1]


def file(image: Image.Image) -> dict:
    content = io.BytesIO()
    image.save(content, "PNG")
    return {"bytes": content.getvalue(), "path": None}


def test_hashes_are_kept_and_a_damaged_file_is_hashed_again(tmp_path, monkeypatch, caplog):
    cells = [file(texture(seed)) for seed in range(5)]
    first = hash_images(cells, range(5), HashStore(tmp_path), name="image")
    (kept,) = tmp_path.rglob("*.safetensors")
    made = []
    real = image_hashes.image_record
    monkeypatch.setattr(image_hashes, "image_record", lambda *given: made.append(given) or real(*given))
    again = hash_images(cells, range(5), HashStore(tmp_path), name="image")
    assert not made and again.records.tobytes() == first.records.tobytes()
    content = bytearray(kept.read_bytes())
    content[40] ^= 1
    kept.write_bytes(content)
    third = hash_images(cells, range(5), HashStore(tmp_path), name="image")
    assert len(made) == 5 and third.records.tobytes() == first.records.tobytes()
    assert "is damaged" in caplog.text and "recomputed" in caplog.text


def test_hashes_of_an_earlier_hfcomp_are_read_unless_they_are_damaged(tmp_path, caplog):
    cells = [file(texture(seed)) for seed in range(2)]
    records = hash_images(cells, range(2), HashStore(), name="image").records
    folder = HashStore(tmp_path).folder
    folder.mkdir()
    path = folder / f"{digest(records.tobytes()).hex()}.npy"
    path.write_bytes(records.tobytes())
    assert HashStore(tmp_path).get(records[1]["key"].tobytes()).tobytes() == records[1].tobytes()
    path.write_bytes(records.tobytes()[:-1] + b"x")
    assert HashStore(tmp_path).get(records[1]["key"].tobytes()) is None
    assert "hashed again" in caplog.text and not path.exists()


def test_a_file_that_did_not_change_is_read_once_and_a_url_never(tmp_path, monkeypatch):
    texture(1).save(tmp_path / "a.png")
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.write(tmp_path / "a.png", "a.png")
    cells = [str(tmp_path / "a.png"), f"zip://a.png::{tmp_path / 'set.zip'}"]

    def hash_cells():
        stores = HashStore(tmp_path / "hashes"), HashStore(tmp_path / "hashes", FILE)
        return hash_images(cells, range(2), stores[0], name="image", files=stores[1])

    first = hash_cells()
    opened = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened.append(path.name) or real(path))
    monkeypatch.setattr(image_hashes, "decode_image", lambda *given, **how: pytest.fail("decoded again"))
    again = hash_cells()
    assert again.records.tobytes() == first.records.tobytes() and len(again.records) == 2
    assert not [name for name in opened if not name.endswith(".safetensors")]
    monkeypatch.undo()
    texture(2).save(tmp_path / "a.png")
    assert hash_cells().records[0]["pixels"] != first.records[0]["pixels"]
    url = "https://example.org/a.jpg"
    assert file_key(url) == file_key({"bytes": None, "path": url}) != file_key(url + "?b")


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path, caplog):
    place = tmp_path / "file"
    place.touch()
    hashes = hash_images([file(texture(1))], [0], HashStore(place), name="image")
    assert len(hashes.records) == 1 and "not kept" in caplog.text


def test_what_cannot_be_read_is_named_and_equal_files_are_one_record(tmp_path):
    cells = [
        file(texture(1)),
        None,
        {"bytes": b"no image", "path": None},
        file(texture(1)),
        str(tmp_path / "gone.jpg"),
    ]
    hashes = hash_images(cells, range(5), HashStore(), name="column 'image'")
    assert hashes.index.tolist() == [0, -1, -1, 0, -1] and len(hashes.records) == 1
    assert len(hashes.unreadable) == 2 and hashes.unreadable[0].startswith("column 'image', row 2")
    assert "gone.jpg" in hashes.unreadable[1]


@pytest.mark.skipif("HFCOMP_REAL_DATA" not in os.environ, reason="HFCOMP_REAL_DATA names a folder of photographs")
def test_on_photographs_copies_are_found_and_no_two_are_taken_for_one():
    folder = Path(os.environ["HFCOMP_REAL_DATA"])
    names = [json.loads(line)["image"] for line in (folder / "coco_open_256.jsonl").read_text().splitlines()]
    images = [Image.open(folder / name).convert("RGB") for name in names]
    known = records(images)
    rows, columns, _ = close_pairs(known["hash"], known["hash"], MOST_BITS)
    assert (rows == columns).all() and len(rows) == 449
    for copy in (lambda image: recompress(image, 30), lambda image: recompress(resize(image, 112), 75)):
        assert looks_alike(records(map(copy, images)), known)[0].tolist() == list(range(449))
    nearest, _ = looks_alike(records(crop_edges(image, 0.04) for image in images), known)
    right = nearest == np.arange(449)
    assert right.mean() > 0.99 and (nearest[~right] == -1).all()
