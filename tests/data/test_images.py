"""Images: every kind of file and value a data set may hold, the processor's own pixels, batches that stay put."""

from __future__ import annotations

import io
import json
import multiprocessing
import pickle
import struct
import warnings
import zipfile
import zlib

import numpy as np
import pytest
import torch
from accelerate.utils import find_batch_size, recursively_apply, send_to_device
from PIL import Image, ImageFile
from torch.distributed.utils import _recursive_to
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory
from transformers import AutoImageProcessor, BatchFeature, CLIPImageProcessorPil, SiglipImageProcessorPil, Trainer
from transformers.trainer_pt_utils import find_batch_size as trainer_find_batch_size

from hfcomp.data.images import MAX_IMAGE_PIXELS, PixelBatch, PixelTransform, decode_image, is_tiny

WHERE = "column 'image', row 17"
RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(image: Image.Image, format: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and brings next to no pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


def pixel(image: Image.Image, x: int = 0, y: int = 0) -> tuple[int, int, int]:
    assert image.mode == "RGB"
    return image.getpixel((x, y))


# Values


def test_every_kind_of_value_gives_the_same_image(tmp_path):
    array = noise(5, 7)
    content = encoded(Image.fromarray(array), "PNG")
    path = tmp_path / "a.png"
    path.write_bytes(content)
    archive = tmp_path / "set.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("inner/a.png", content)
    values = [
        {"bytes": content, "path": None},
        {"bytes": content, "path": "gone.png"},
        {"bytes": None, "path": str(path)},
        {"path": path},
        Image.fromarray(array),
        Image.open(path),
        str(path),
        path,
        f"zip://inner/a.png::{archive}",
        content,
        bytearray(content),
        memoryview(content),
        array,
    ]
    for value in values:
        image = decode_image(value, where=WHERE)
        assert image.mode == "RGB" and image.info == {}
        assert np.array_equal(np.asarray(image), array)


def test_rows_of_a_datasets_column_decoded_or_not(tmp_path):
    datasets = pytest.importorskip("datasets")
    path = tmp_path / "a.png"
    Image.fromarray(noise(5, 7)).save(path)
    features = datasets.Features({"image": datasets.Image()})
    rows = datasets.Dataset.from_dict({"image": [str(path), None, {"bytes": path.read_bytes()}]}, features=features)
    for dataset in (rows, rows.cast_column("image", datasets.Image(decode=False)), rows.with_format("numpy")):
        for row in (0, 2):
            assert np.array_equal(np.asarray(decode_image(dataset[row]["image"])), noise(5, 7))
    with pytest.raises(ValueError, match="row 1 is empty"):
        decode_image(rows[1]["image"], where="column 'image', row 1")
    with pytest.raises(TypeError, match=r"Tensor.*with_format\(None\)"):
        decode_image(rows.with_format("torch")[0]["image"])


def test_the_value_is_not_changed():
    image = Image.new("RGBA", (4, 3), (255, 0, 0, 0))
    image.info["note"] = "kept"
    assert pixel(decode_image(image)) == WHITE
    assert image.mode == "RGBA" and image.info == {"note": "kept"}
    rgb = Image.new("RGB", (4, 3), RED)
    decode_image(rgb).putpixel((0, 0), BLUE)
    assert rgb.getpixel((0, 0)) == RED


@pytest.mark.parametrize("value", [None, {"bytes": None, "path": None}, {"path": None}])
def test_an_empty_row_is_named(value):
    with pytest.raises(ValueError, match="column 'image', row 17 is empty"):
        decode_image(value, where=WHERE)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (3, "int"),
        ([[1, 2], [3, 4]], "list"),
        (torch.zeros(3, 4, 4), "Tensor"),
        ({"pixels": b""}, r"\['pixels'\]"),
        (np.zeros((4, 4, 3)), "float64"),
        (np.zeros((4, 4, 3), dtype=np.int64), "int64"),
        (np.zeros((4, 4, 3), dtype=np.int8), "int8"),
    ],
)
def test_other_kinds_are_refused_by_name(value, found):
    with pytest.raises(TypeError, match=f"column 'image', row 17 holds .*{found}"):
        decode_image(value, where=WHERE)


@pytest.mark.parametrize("shape", [(3, 8, 8), (4,), (2, 4, 4, 3), (4, 4, 5)])
def test_array_shapes_that_are_no_image(shape):
    with pytest.raises(ValueError, match=r"row 17 holds an array of shape .*transpose"):
        decode_image(np.zeros(shape, dtype=np.uint8), where=WHERE)


@pytest.mark.parametrize("value", [np.zeros((0, 4, 3), dtype=np.uint8), Image.new("RGB", (0, 4))])
def test_no_pixels_at_all(value):
    with pytest.raises(ValueError, match="row 17 is .* holds nothing"):
        decode_image(value, where=WHERE)


def test_arrays():
    grey = noise(3, 5, 1)
    expected = np.repeat(grey, 3, axis=2)
    assert np.array_equal(np.asarray(decode_image(grey)), expected)
    assert np.array_equal(np.asarray(decode_image(grey[..., 0])), expected)
    assert np.array_equal(np.asarray(decode_image(grey.astype(np.uint16) * 257)), expected)
    assert np.array_equal(np.asarray(decode_image(grey[..., 0].astype(">u2") * 257)), expected)
    assert np.array_equal(np.asarray(decode_image(noise(3, 5)[:, ::-1])), noise(3, 5)[:, ::-1])
    assert np.array_equal(np.asarray(decode_image(noise(3, 5).astype(np.uint16) * 257)), noise(3, 5))
    assert pixel(decode_image(np.array([[True, False]])), 0) == WHITE
    assert pixel(decode_image(np.array([[True, False]])), 1) == BLACK
    assert pixel(decode_image(np.array([[[255, 0, 0, 0]]], dtype=np.uint8))) == WHITE
    assert pixel(decode_image(np.array([[[0, 128]]], dtype=np.uint8))) == (127, 127, 127)


# Modes


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr", "HSV", "RGBX"])
def test_opaque_modes_are_converted(mode):
    image = Image.new("RGB", (4, 4), WHITE).convert(mode)
    assert pixel(decode_image(image)) == WHITE


@pytest.mark.parametrize("mode", ["RGBA", "RGBa", "LA", "La"])
def test_transparent_modes_are_composited_on_white(mode):
    image = Image.new("RGBA", (2, 1), (0, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))
    image = image.convert("LA").convert("La") if mode == "La" else image.convert(mode)
    decoded = decode_image(image)
    assert pixel(decoded, 0) == BLACK and pixel(decoded, 1) == WHITE


@pytest.mark.parametrize(
    ("mode", "key", "shown"),
    [("P", 0, RED), ("P", b"\x00\xff", RED), ("RGB", BLACK, RED), ("L", 0, (76, 76, 76)), ("1", 0, WHITE)],
)
def test_a_transparent_colour_of_a_png_becomes_white(mode, key, shown):
    image = Image.new("RGB", (2, 1), BLACK)
    image.putpixel((1, 0), RED)
    if mode == "P":
        palette = Image.new("P", (2, 1), 0)
        palette.putpalette([*BLACK, *RED])
        palette.putpixel((1, 0), 1)
        image = palette
    elif mode == "1":
        image = image.point(lambda value: value).convert("L").point(lambda value: 255 * (value > 0)).convert("1")
    else:
        image = image.convert(mode)
    content = encoded(image, "PNG", transparency=key)
    assert "transparency" in Image.open(io.BytesIO(content)).info
    decoded = decode_image(content)
    assert pixel(decoded, 0) == WHITE and pixel(decoded, 1) == shown


def test_cmyk_jpeg():
    content = encoded(Image.new("RGB", (16, 16), RED).convert("CMYK"), "JPEG", quality=100)
    assert Image.open(io.BytesIO(content)).mode == "CMYK"
    assert np.abs(np.subtract(pixel(decode_image(content)), RED)).max() <= 3


def test_sixteen_bits_become_eight():
    values = np.array([[0, 128, 129, 257, 32768, 65535 - 129, 65535]], dtype=np.uint16)
    expected = [0, 0, 1, 1, 128, 254, 255]
    big_endian = Image.frombytes("I;16B", (7, 1), values.astype(">u2").tobytes())
    for image in (Image.fromarray(values), big_endian, Image.fromarray(values.astype(np.int32))):
        assert np.asarray(decode_image(image))[0, :, 0].tolist() == expected
    for format in ("PNG", "TIFF", "PPM"):
        decoded = decode_image(encoded(Image.fromarray(values), format))
        assert np.asarray(decoded)[0, :, 0].tolist() == expected
    dark = decode_image(encoded(Image.fromarray(np.array([[100, 200]], dtype=np.uint16)), "PNG"))
    assert np.asarray(dark)[0, :, 0].tolist() == [0, 1]


def test_32_bit_integers_go_by_their_range():
    small = Image.fromarray(np.array([[0, 7, 255]], dtype=np.int32))
    assert np.asarray(decode_image(small))[0, :, 0].tolist() == [0, 7, 255]
    for bad in ([[0, 65536]], [[-1, 5]]):
        with pytest.raises(ValueError, match="row 17 has 32-bit pixels from .* to "):
            decode_image(Image.fromarray(np.array(bad, dtype=np.int32)), where=WHERE)


def test_float_pixels_are_refused():
    with pytest.raises(ValueError, match="row 17 has float pixels"):
        decode_image(Image.new("F", (2, 2), 0.5), where=WHERE)


def test_a_mode_this_pillow_cannot_convert_is_refused(monkeypatch):
    def refuse(self, mode):
        raise ValueError(f"conversion from {self.mode} to {mode} not supported")

    monkeypatch.setattr(Image.Image, "convert", refuse)
    with pytest.raises(ValueError, match="row 17 has mode LAB: conversion from LAB.*Save it as RGB"):
        decode_image(Image.new("LAB", (2, 2)), where=WHERE)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_turned_once(format, orientation):
    blocks = Image.new("RGB", (64, 32), WHITE)
    blocks.paste(RED, (0, 0, 32, 16))
    blocks.paste(BLUE, (32, 16, 64, 32))
    exif = Image.Exif()
    exif[0x0112] = orientation
    decoded = decode_image(encoded(blocks, format, exif=exif))
    assert decoded.size == ((64, 32) if orientation < 5 else (32, 64))
    # Where the red corner of the stored pixels belongs, from the EXIF standard's row and column rule.
    right, low = {1: (0, 0), 2: (1, 0), 3: (1, 1), 4: (0, 1), 5: (0, 0), 6: (1, 0), 7: (1, 1), 8: (0, 1)}[orientation]
    corner = pixel(decoded, right * (decoded.width - 4) + 2, low * (decoded.height - 4) + 2)
    assert corner[0] > 200 and corner[2] < 60
    assert np.array_equal(np.asarray(decode_image(decoded)), np.asarray(decoded))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_a_damaged_exif_block_counts_as_upright():
    content = encoded(Image.fromarray(noise(4, 6)), "PNG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    assert decode_image(content).size == (6, 4)


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_frame_of_an_animation(format):
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, GREEN, BLUE)]
    options = {"lossless": True} if format == "WEBP" else {}
    content = encoded(frames[0], format, save_all=True, append_images=frames[1:], **options)
    assert Image.open(io.BytesIO(content)).n_frames == 3
    assert pixel(decode_image(content)) == RED


def test_tiny_images_are_used_and_known():
    for size in ((1, 1), (1, 9), (9, 1)):
        image = decode_image(encoded(Image.new("RGB", size, RED), "PNG"))
        assert image.size == size and is_tiny(image)
    assert not is_tiny(Image.new("RGB", (2, 2)))


# Damage and size


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"])
def test_a_truncated_file_is_refused_by_row_and_path(format, tmp_path):
    content = encoded(Image.fromarray(noise(64, 64)), format)
    path = tmp_path / "half.img"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"column 'image', row 17 \(file '.*half.img'\) .*Remove the row"):
        decode_image(path, where=WHERE)
    with pytest.raises(ValueError, match=r"column 'image', row 17 \(file 'a.img'\)"):
        decode_image({"bytes": path.read_bytes(), "path": "a.img"}, where=WHERE)
    with pytest.raises(ValueError, match="column 'image', row 17 "):
        decode_image(path.read_bytes(), where=WHERE)


def test_every_cut_and_every_flipped_byte_is_an_image_or_a_value_error():
    source = Image.fromarray(noise(12, 12))
    generator = np.random.default_rng(1)
    for format in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "ICO"):
        content = encoded(source, format)
        damaged = [content[: int(cut)] for cut in generator.integers(0, len(content), 15)]
        for place in generator.integers(0, min(len(content), 120), 25):
            changed = bytearray(content)
            changed[int(place)] ^= 0xFF
            damaged.append(bytes(changed))
        for value in damaged:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    assert decode_image(value, where=WHERE, max_pixels=10_000).mode == "RGB"
                except ValueError as error:
                    assert str(error).startswith(WHERE)


def test_truncated_files_pass_where_pillow_is_told_so(monkeypatch):
    content = encoded(Image.fromarray(noise(64, 64)), "JPEG")[:-200]
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert decode_image(content).size == (64, 64)


def test_a_text_file_named_jpg(tmp_path):
    path = tmp_path / "page.jpg"
    path.write_text("<!DOCTYPE html><html>404</html>")
    with pytest.raises(ValueError, match=r"row 17 \(file '.*page.jpg'\) is in no image format .*<!DOCTYPE html>"):
        decode_image(str(path), where=WHERE)
    with pytest.raises(ValueError, match="row 17 .*0 bytes"):
        decode_image(b"", where=WHERE)


def test_a_missing_file_and_a_folder(tmp_path):
    missing = tmp_path / "gone.jpg"
    for value in (missing, str(missing), {"bytes": None, "path": str(missing)}):
        with pytest.raises(FileNotFoundError, match="column 'image', row 17 names the file '.*gone.jpg'"):
            decode_image(value, where=WHERE)
    with pytest.raises(OSError, match="column 'image', row 17 names .*cannot be read"):
        decode_image(tmp_path, where=WHERE)


@pytest.mark.parametrize("size", [(60_000, 60_000), (MAX_IMAGE_PIXELS // 8 + 1, 8)])
@pytest.mark.parametrize("pillow_limit", [None, 1, Image.MAX_IMAGE_PIXELS])
def test_a_huge_header_is_refused_before_decoding(size, pillow_limit, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pillow_limit)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("pixels were decoded"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="row 17 has .*limit is 178,956,970 pixels.*raise max_pixels"):
            decode_image(png_header(*size), where=WHERE)
    assert pillow_limit == Image.MAX_IMAGE_PIXELS


def test_the_limit_is_ours_and_inclusive(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    content = encoded(Image.new("RGB", (10, 10)), "PNG")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode_image(content, max_pixels=100).size == (10, 10)
    for value in (content, Image.new("RGB", (10, 10)), np.zeros((10, 10), dtype=np.uint8)):
        with pytest.raises(ValueError, match="limit is 40 pixels"):
            decode_image(value, max_pixels=40)


# PixelTransform

PROCESSORS = {
    "clip": lambda: CLIPImageProcessorPil(),
    "clip_small": lambda: CLIPImageProcessorPil(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 36}),
    "clip_padded": lambda: CLIPImageProcessorPil(size={"shortest_edge": 20}, crop_size={"height": 32, "width": 32}),
    "siglip": lambda: SiglipImageProcessorPil(),
    "siglip_unnormalised": lambda: SiglipImageProcessorPil(do_normalize=False),
    "siglip_offset": lambda: SiglipImageProcessorPil(rescale_factor=1 / 127.5, image_mean=1.0, image_std=1.0),
    "siglip_raw": lambda: SiglipImageProcessorPil(do_normalize=False, do_rescale=False),
    "clip_unrescaled": lambda: CLIPImageProcessorPil(do_rescale=False, image_mean=[120.0] * 3, image_std=[60.0] * 3),
}
SIZES = [(120, 160), (160, 120), (50, 50), (33, 400), (224, 224), (3, 3), (1, 1), (1, 7), (7, 1)]


def pictures() -> list[Image.Image]:
    grey = decode_image(noise(30, 44, 1))
    return [decode_image(noise(*size, seed=index)) for index, size in enumerate(SIZES)] + [grey]


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_equal_the_processors_own(name):
    processor = PROCESSORS[name]()
    transform = PixelTransform.from_processor(processor)
    images = pictures()
    pixels = transform(images)
    assert pixels.dtype == torch.uint8 and pixels.is_contiguous()
    assert pixels.shape == (len(images), 3, *transform.size)
    own = processor(images=images, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(transform.normalize(pixels), own.float(), rtol=1e-6, atol=1e-6)
    mean, std = (torch.tensor(values)[:, None, None] for values in (transform.mean, transform.std))
    torch.testing.assert_close((pixels * transform.rescale_factor - mean) / std, own.float(), rtol=1e-6, atol=1e-6)
    assert len(transform.mean) == len(transform.std) == 3


@pytest.mark.parametrize("name", ["CLIPImageProcessor", "SiglipImageProcessor"])
def test_pixels_equal_those_of_the_torchvision_processors(name):
    pytest.importorskip("torchvision")
    import transformers

    processor = getattr(transformers, name)()
    assert processor.backend == "torchvision"
    transform = PixelTransform.from_processor(processor)
    images = pictures()
    own = processor(images=images, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(transform.normalize(transform(images)), own, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_an_old_preprocessor_config(kind, tmp_path):
    config = {
        "feature_extractor_type": f"{kind}FeatureExtractor",
        "do_resize": True,
        # SigLIP never had a feature extractor's int: there it would mean the short edge, as in CLIP.
        "size": 224 if kind == "CLIP" else {"height": 224, "width": 224},
        "resample": 3,
        "do_center_crop": kind == "CLIP",
        "crop_size": 224,
        "do_normalize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    transform = PixelTransform.from_processor(processor)
    assert transform.size == (224, 224) and transform.mean == tuple(config["image_mean"])
    own = processor(images=pictures()[:2], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(transform.normalize(transform(pictures()[:2])), own, rtol=1e-6, atol=1e-6)


def test_a_processor_around_an_image_processor_will_do():
    class Wrapper:
        image_processor = SiglipImageProcessorPil()

    assert PixelTransform.from_processor(Wrapper()).size == (224, 224)


def test_no_images_give_an_empty_batch():
    assert PixelTransform.from_processor(CLIPImageProcessorPil())([]).shape == (0, 3, 224, 224)


@pytest.mark.parametrize("options", [{"do_center_crop": False}, {"do_resize": False, "do_center_crop": False}])
def test_a_processor_without_one_size_is_refused(options):
    with pytest.raises(
        ValueError, match="CLIPImageProcessorPil gives images of different sizes .*do_center_crop=True"
    ):
        PixelTransform.from_processor(CLIPImageProcessorPil(**options))


def test_a_naflex_processor_is_refused():
    from transformers import Siglip2ImageProcessorPil

    with pytest.raises(ValueError, match=r"Expected \[3, H, W\].*NaFlex"):
        PixelTransform.from_processor(Siglip2ImageProcessorPil())


def test_a_processor_that_does_something_else_is_refused():
    class Inverting(SiglipImageProcessorPil):
        def rescale(self, image, scale, **kwargs):
            return 1 - super().rescale(image, scale, **kwargs)

    class Early(SiglipImageProcessorPil):
        def resize(self, image, *args, **kwargs):
            return super().resize(image, *args, **kwargs).astype(np.float32)

    with pytest.raises(ValueError, match="Inverting does more to the pixels"):
        PixelTransform.from_processor(Inverting())
    with pytest.raises(ValueError, match=r"Early gives torch.float32"):
        PixelTransform.from_processor(Early())
    with pytest.raises(TypeError, match="Expected an image processor .*found a str"):
        PixelTransform.from_processor("openai/clip-vit-base-patch32")


def test_images_the_transform_cannot_take_are_named():
    transform = PixelTransform.from_processor(CLIPImageProcessorPil())
    good = Image.new("RGB", (8, 8))
    with pytest.raises(ValueError, match="image 1 of the batch has mode L"):
        transform([good, Image.new("L", (8, 8))])
    with pytest.raises(ValueError, match="row 17 is 1 x 100,000 pixels.*short edge resized to 224"):
        transform([good, Image.new("RGB", (1, 100_000))], where=["row 16", "row 17"])


def test_the_transform_pickles():
    transform = PixelTransform.from_processor(CLIPImageProcessorPil())
    again = pickle.loads(pickle.dumps(transform))
    assert torch.equal(again(pictures()[:2]), transform(pictures()[:2]))


# PixelBatch


def a_batch(count: int = 4) -> PixelBatch:
    return PixelBatch(torch.from_numpy(noise(count, 3 * 5 * 6, 1)).reshape(count, 3, 5, 6))


def test_a_batch_knows_its_length_and_slices():
    batch = a_batch()
    assert len(batch) == 4 and "[4, 3, 5, 6]" in repr(batch)
    part = batch.slice_to(1, 3, torch.device("cpu"))
    assert part.dtype == torch.uint8 and torch.equal(part, batch.pixels[1:3])
    assert batch.slice_to(0, 4, "meta").device.type == "meta"
    assert PixelBatch(torch.zeros(2, 3, 4, 4, dtype=torch.bfloat16)).slice_to(0, 1, "cpu").dtype == torch.bfloat16


def test_a_batch_of_something_else_is_refused():
    with pytest.raises(ValueError, match=r"shape \[2, 4, 4, 3\].*Expected a tensor \[M, 3, H, W\]"):
        PixelBatch(torch.zeros(2, 4, 4, 3))
    with pytest.raises(ValueError, match="a ndarray"):
        PixelBatch(np.zeros((2, 3, 4, 4)))
    with pytest.raises(TypeError, match=r"torch.int64"):
        PixelBatch(torch.zeros(2, 3, 4, 4, dtype=torch.int64))


def test_nothing_moves_or_opens_a_batch():
    batch = a_batch()
    inputs = {"input_ids": torch.ones(4, 7, dtype=torch.long), "pixels": batch}
    sent = send_to_device(inputs, torch.device("meta"))
    assert sent["input_ids"].device.type == "meta" and sent["pixels"] is batch
    assert send_to_device(BatchFeature(inputs), torch.device("cpu"))["pixels"] is batch
    assert recursively_apply(lambda tensor: tensor + 1, inputs)["pixels"] is batch
    assert _recursive_to(inputs, torch.device("meta"), False)[0]["pixels"] is batch

    class Bare(Trainer):
        def __init__(self):
            self.args = type("Args", (), {"device": torch.device("meta")})()
            self.is_deepspeed_enabled = False

    prepared = Bare()._prepare_inputs(inputs)
    assert prepared["input_ids"].device.type == "meta" and prepared["pixels"] is batch
    assert batch.pixels.device.type == "cpu"


def test_the_key_order_that_batch_sizes_need():
    batch, tokens = a_batch(), torch.ones(4, 7)
    assert find_batch_size({"input_ids": tokens, "pixels": batch}) == 4
    with pytest.raises(TypeError):
        find_batch_size({"pixels": batch, "input_ids": tokens})
    assert trainer_find_batch_size({"pixels": batch, "input_ids": tokens}) == 4


def test_pinning_reaches_the_pixels(monkeypatch):
    batch = a_batch()
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())
    pinned = pin_memory({"pixels": batch, "input_ids": torch.ones(2)})["pixels"]
    assert isinstance(pinned, PixelBatch) and pinned is not batch and torch.equal(pinned.pixels, batch.pixels)


class Collate:
    """Decoding and cutting inside a worker, as the collators do it."""

    def __init__(self, transform: PixelTransform) -> None:
        self.transform = transform

    def __call__(self, rows: list[bytes]) -> dict:
        images = [decode_image(row, where=f"row {index}") for index, row in enumerate(rows)]
        return {"index": torch.arange(len(rows)), "pixels": PixelBatch(self.transform(images))}


def test_through_a_data_loader_with_two_workers():
    processor = CLIPImageProcessorPil(size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24})
    collate = Collate(PixelTransform.from_processor(processor))
    rows = [encoded(Image.fromarray(noise(20, 30, seed=index)), "PNG") for index in range(6)]
    context = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    loader = DataLoader(rows, batch_size=2, num_workers=2, collate_fn=collate, multiprocessing_context=context)
    batches = list(loader)
    assert [len(batch["pixels"]) for batch in batches] == [2, 2, 2]
    expected = collate(rows)["pixels"].pixels
    assert torch.equal(torch.cat([batch["pixels"].slice_to(0, 2, "cpu") for batch in batches]), expected)
