"""The store of pixels: what it gives is what decoding gives, whatever is interrupted, damaged, moved or shuffled."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hfcomp.checksums import with_checksum
from hfcomp.data.pixels import PixelTransform
from hfcomp.data.pixels.store import KEY, ImageKeys, ImageReader, PixelStore
from hfcomp.data.pixels.store_writer import StoreWriter
from hfcomp.modeling.image_processors import CLIPImageProcessorPil

SIZE = 12


def processor(size: int = SIZE, **settings) -> CLIPImageProcessorPil:
    settings = {"crop_size": {"height": size, "width": size}, **settings}
    return CLIPImageProcessorPil(size={"shortest_edge": size}, **settings)


@pytest.fixture(scope="module")
def transform() -> PixelTransform:
    return PixelTransform.from_processor(processor())


def png(seed: int, size: tuple[int, int] = (15, 20)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def add(writer: StoreWriter, transform: PixelTransform, value, tiny: bool = False) -> bool:
    keys = ImageKeys(value)
    known_keys = [key for key in (keys.place_key(), keys.content_key()) if key is not None]
    pixels = ImageReader(transform)([value], ["an image"]).pixels[0].numpy()
    return writer.add(known_keys, pixels, tiny=tiny)


def write(folder: Path, transform: PixelTransform, values, **settings) -> list[bool]:
    with StoreWriter(folder, transform, log=lambda line: None, **settings) as writer:
        return [add(writer, transform, value) for value in values]


def read(folder: Path, transform: PixelTransform, values):
    return ImageReader(transform, store=PixelStore(folder, transform))(
        values, [f"row {i}" for i in range(len(values))]
    )


def test_stored_pixels_are_those_of_decoding_in_any_order(transform, tmp_path):
    values = [{"bytes": png(seed), "path": None} for seed in range(7)]
    # two images fill a part, so that four parts are written
    assert write(tmp_path, transform, values, part_bytes=2 * 3 * SIZE * SIZE) == [True] * 7
    order = [values[index] for index in (5, 0, 0, 6, 3)]
    images, expected = read(tmp_path, transform, order), ImageReader(transform)(order, ["row"] * 5)
    assert torch.equal(images.pixels, expected.pixels) and not any(images.decoded) and all(expected.decoded)
    # the name of an image that is embedded says nothing
    assert not any(read(tmp_path, transform, [{"bytes": png(2), "path": "other.png"}]).decoded)


def test_an_image_that_is_missing_is_decoded_and_counted(transform, tmp_path):
    write(tmp_path, transform, [png(0)])
    images = read(tmp_path, transform, [png(1, (1, 9)), png(0), png(2)])
    assert images.decoded == [True, False, True] and images.tiny == [True, False, False]
    assert torch.equal(images.pixels, ImageReader(transform)([png(1, (1, 9)), png(0), png(2)], ["a"] * 3).pixels)
    with pytest.raises(ValueError, match="row 1 .*supported"):
        read(tmp_path, transform, [png(0), b"no image"])


def test_a_tiny_image_stays_known_as_one(transform, tmp_path):
    with StoreWriter(tmp_path, transform) as writer:
        add(writer, transform, png(0, (1, 9)), tiny=True)
    assert read(tmp_path, transform, [png(0, (1, 9))]).tiny == [True]


def test_a_file_is_known_unopened_by_place_and_elsewhere_by_content(transform, tmp_path, monkeypatch):
    file, moved = tmp_path / "a.png", tmp_path / "elsewhere.png"
    file.write_bytes(png(0))
    write(tmp_path / "store", transform, [{"bytes": None, "path": str(file)}])
    moved.write_bytes(png(0))
    assert read(tmp_path / "store", transform, [str(moved), png(0), str(file)]).decoded == [False] * 3
    with monkeypatch.context() as patched:
        patched.setattr(ImageKeys, "content_key", lambda self: pytest.fail("the file was opened"))
        assert read(tmp_path / "store", transform, [str(file)]).decoded == [False]
    # other content under the old name is another image
    file.write_bytes(png(1))
    os.utime(file, ns=(1, 1))
    images = read(tmp_path / "store", transform, [str(file)])
    assert images.decoded == [True]
    assert torch.equal(images.pixels, ImageReader(transform)([png(1)], ["row"]).pixels)


def test_a_url_is_known_without_being_fetched(transform, tmp_path):
    url = {"bytes": None, "path": "https://example.org/a.png"}
    with StoreWriter(tmp_path, transform) as writer:
        pixels = ImageReader(transform)([png(3)], ["row"]).pixels[0].numpy()
        writer.add([ImageKeys(url).place_key()], pixels, tiny=False)
    assert torch.equal(read(tmp_path, transform, [url]).pixels[0], torch.from_numpy(pixels))
    with pytest.raises(ValueError, match="not downloaded"):
        read(tmp_path, transform, [{"bytes": None, "path": "https://example.org/b.png"}])


def test_what_is_there_is_not_added_again_and_a_second_name_costs_no_pixels(transform, tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(png(0))
    store = tmp_path / "store"
    assert write(store, transform, [png(0), png(0), png(1)]) == [True, False, True]
    size = (store / "pixels.bin").stat().st_size
    assert write(store, transform, [str(file), png(1)]) == [False, False]
    assert (store / "pixels.bin").stat().st_size == size == 2 * 3 * SIZE * SIZE
    assert len(PixelStore(store)) == 2 and not any(read(store, transform, [str(file)]).decoded)


def test_an_interrupted_build_keeps_what_is_finished_and_cuts_off_the_rest(transform, tmp_path):
    with pytest.raises(KeyboardInterrupt), StoreWriter(tmp_path, transform, part_bytes=1) as writer:
        add(writer, transform, png(0))
        raise KeyboardInterrupt
    # as a killed process leaves them: pixels and keys that the manifest does not count
    for name, rest in (("pixels.bin", b"\1" * 700), ("keys.bin", b"\2" * (KEY.itemsize + 5))):
        with (tmp_path / name).open("ab") as stream:
            stream.write(rest)
    assert len(PixelStore(tmp_path, transform)) == 1
    assert write(tmp_path, transform, [png(0), png(1)]) == [False, True]
    values = [png(1), png(0)]
    assert torch.equal(read(tmp_path, transform, values).pixels, ImageReader(transform)(values, ["a"] * 2).pixels)
    PixelStore(tmp_path).verify()


def test_an_open_store_sees_what_was_finished_when_it_was_opened(transform, tmp_path):
    write(tmp_path, transform, [png(0)])
    store = PixelStore(tmp_path, transform)
    write(tmp_path, transform, [png(1)])
    assert store.find(ImageKeys(png(1)).content_key()) < 0 <= store.find(ImageKeys(png(0)).content_key())
    again = pickle.loads(pickle.dumps(store))
    assert again.find(ImageKeys(png(1)).content_key()) >= 0


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: flip(folder / "keys.bin", 3), r"keys\.bin .*damaged: .*checksum"),
        (lambda folder: flip(folder / "pixels.json", 40), r"pixels\.json"),
        (lambda folder: os.truncate(folder / "pixels.bin", 500), r"pixels\.bin .*damaged: .*500 bytes"),
        (lambda folder: (folder / "pixels.bin").unlink(), r"pixels\.bin .*damaged: .* 0 bytes"),
        (lambda folder: (folder / "pixels.json").unlink(), r"no pixels\.json.*hfcomp build pixels"),
    ],
)
def test_a_damaged_store_is_refused_by_the_name_of_the_file(transform, tmp_path, damage, message):
    write(tmp_path, transform, [png(0), png(1)])
    damage(tmp_path)
    with pytest.raises(ValueError, match=message):
        PixelStore(tmp_path, transform)


def test_a_flipped_bit_of_an_image_is_found_when_it_is_read(transform, tmp_path):
    write(tmp_path, transform, [png(0), png(1)])
    flip(tmp_path / "pixels.bin", 3 * SIZE * SIZE + 7)
    assert read(tmp_path, transform, [png(0)]).decoded == [False]
    for call in (lambda: read(tmp_path, transform, [png(1)]), PixelStore(tmp_path).verify):
        with pytest.raises(ValueError, match=r"pixels\.bin .*damaged: image 1 .*hfcomp build pixels"):
            call()


def test_another_preprocessing_is_refused_with_what_differs(transform, tmp_path):
    write(tmp_path, transform, [png(0)])
    other = PixelTransform.from_processor(processor(resample=2))
    with pytest.raises(ValueError, match=r"'resample': 3.*'resample': 2"):
        PixelStore(tmp_path, other)
    with pytest.raises(ValueError, match="different preprocessing"):
        write(tmp_path, PixelTransform.from_processor(processor(size=16)), [png(1)])
    path = tmp_path / "pixels.json"
    manifest = json.loads(path.read_text())
    manifest.pop("checksum")
    manifest["transform"]["pillow"] = "9.0"
    path.write_text(json.dumps(with_checksum(manifest)))
    with pytest.raises(ValueError, match=r"pillow: 9\.0 "):
        PixelStore(tmp_path, transform)
    # mean and standard deviation are applied on the device
    path.unlink()
    write(tmp_path / "new", transform, [png(0)])
    PixelStore(tmp_path / "new", PixelTransform.from_processor(processor(image_mean=[0.5] * 3)))


def test_a_folder_of_something_else_is_left_alone(transform, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="not empty.*no pixels.json"):
        write(tmp_path, transform, [png(0)])
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def _write_in_process(folder: Path, seeds: range, barrier, lines) -> None:
    own = PixelTransform.from_processor(processor())
    barrier.wait()
    with StoreWriter(folder, own, log=lines.put, part_bytes=1) as writer:
        for seed in seeds:
            add(writer, own, png(seed))


def test_processes_that_write_at_once_take_turns(transform, tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, lines = context.Barrier(2), context.Queue()
    parts = (range(6), range(3, 9))
    processes = [context.Process(target=_write_in_process, args=(tmp_path, part, barrier, lines)) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    values = [png(seed) for seed in range(9)]
    images = read(tmp_path, transform, values)
    assert len(PixelStore(tmp_path)) == 9 and not any(images.decoded)
    assert torch.equal(images.pixels, ImageReader(transform)(values, ["row"] * 9).pixels)
    while not lines.empty():
        assert "another process" in lines.get()
