"""Images: every kind of file and value that a dataset may hold becomes 8-bit RGB or an error that says where."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from hfcomp.data.images import MAX_IMAGE_PIXELS, decode_image, is_tiny

WHERE = "column 'image', row 17"
RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encode(image: Image.Image, format: str, **options) -> bytes:
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
    content = encode(Image.fromarray(array), "PNG")
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
    with pytest.raises(ValueError, match="'image', row 17 is empty"):
        decode_image(value, where=WHERE)


@pytest.mark.parametrize(
    ("value", "description"),
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
def test_other_kinds_are_refused_by_name(value, description):
    with pytest.raises(TypeError, match=f"'image', row 17 .*{description}"):
        decode_image(value, where=WHERE)


@pytest.mark.parametrize("shape", [(3, 8, 8), (4,), (2, 4, 4, 3), (4, 4, 5)])
def test_array_shapes_that_are_no_image(shape):
    with pytest.raises(ValueError, match=r"row 17 .*shape .*transpose"):
        decode_image(np.zeros(shape, dtype=np.uint8), where=WHERE)


@pytest.mark.parametrize("value", [np.zeros((0, 4, 3), dtype=np.uint8), Image.new("RGB", (0, 4))])
def test_no_pixels_at_all(value):
    with pytest.raises(ValueError, match="row 17 has .*empty"):
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
def test_a_transparent_color_of_a_png_becomes_white(mode, key, shown):
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
    content = encode(image, "PNG", transparency=key)
    assert "transparency" in Image.open(io.BytesIO(content)).info
    decoded = decode_image(content)
    assert pixel(decoded, 0) == WHITE and pixel(decoded, 1) == shown


def test_cmyk_jpeg():
    content = encode(Image.new("RGB", (16, 16), RED).convert("CMYK"), "JPEG", quality=100)
    assert Image.open(io.BytesIO(content)).mode == "CMYK"
    assert np.abs(np.subtract(pixel(decode_image(content)), RED)).max() <= 3


def test_sixteen_bits_become_eight():
    values = np.array([[0, 128, 129, 257, 32768, 65535 - 129, 65535]], dtype=np.uint16)
    expected = [0, 0, 1, 1, 128, 254, 255]
    big_endian = Image.frombytes("I;16B", (7, 1), values.astype(">u2").tobytes())
    for image in (Image.fromarray(values), big_endian, Image.fromarray(values.astype(np.int32))):
        assert np.asarray(decode_image(image))[0, :, 0].tolist() == expected
    for format in ("PNG", "TIFF", "PPM"):
        decoded = decode_image(encode(Image.fromarray(values), format))
        assert np.asarray(decoded)[0, :, 0].tolist() == expected
    dark = decode_image(encode(Image.fromarray(np.array([[100, 200]], dtype=np.uint16)), "PNG"))
    assert np.asarray(dark)[0, :, 0].tolist() == [0, 1]


def test_32_bit_integers_go_by_their_range():
    small = Image.fromarray(np.array([[0, 7, 255]], dtype=np.int32))
    assert np.asarray(decode_image(small))[0, :, 0].tolist() == [0, 7, 255]
    for bad in ([[0, 65536]], [[-1, 5]]):
        with pytest.raises(ValueError, match="row 17 .*32-bit .* to "):
            decode_image(Image.fromarray(np.array(bad, dtype=np.int32)), where=WHERE)


def test_float_pixels_are_refused():
    with pytest.raises(ValueError, match="row 17 .*float pixels"):
        decode_image(Image.new("F", (2, 2), 0.5), where=WHERE)


def test_a_mode_this_pillow_cannot_convert_is_refused(monkeypatch):
    def refuse(self, mode):
        raise ValueError(f"conversion from {self.mode} to {mode} not supported")

    monkeypatch.setattr(Image.Image, "convert", refuse)
    with pytest.raises(ValueError, match="row 17 .*LAB.*RGB"):
        decode_image(Image.new("LAB", (2, 2)), where=WHERE)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_turned_once(format, orientation):
    blocks = Image.new("RGB", (64, 32), WHITE)
    blocks.paste(RED, (0, 0, 32, 16))
    blocks.paste(BLUE, (32, 16, 64, 32))
    exif = Image.Exif()
    exif[0x0112] = orientation
    decoded = decode_image(encode(blocks, format, exif=exif))
    assert decoded.size == ((64, 32) if orientation < 5 else (32, 64))
    # Where the red corner of the stored pixels belongs, from the EXIF standard's row and column rule.
    right, low = {1: (0, 0), 2: (1, 0), 3: (1, 1), 4: (0, 1), 5: (0, 0), 6: (1, 0), 7: (1, 1), 8: (0, 1)}[orientation]
    corner = pixel(decoded, right * (decoded.width - 4) + 2, low * (decoded.height - 4) + 2)
    assert corner[0] > 200 and corner[2] < 60
    assert np.array_equal(np.asarray(decode_image(decoded)), np.asarray(decoded))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_an_rgb_file_comes_without_its_file_or_metadata(format):
    source = Image.fromarray(noise(24, 40))
    image = decode_image(encode(source, format, dpi=(72, 72), comment=b"hidden"))
    assert image.mode == "RGB" and not image.info and not image.getexif() and getattr(image, "fp", None) is None
    reference = Image.open(io.BytesIO(encode(source, format))).convert("RGB")
    assert np.array_equal(np.asarray(image), np.asarray(reference))
    assert np.array_equal(np.asarray(image.copy().rotate(90, expand=True)), np.rot90(np.asarray(reference)))


def test_a_jpeg_is_read_at_a_part_of_its_size_only_where_asked():
    smooth = Image.fromarray(noise(3, 5)).resize((500, 300), Image.Resampling.BICUBIC)
    file = encode(smooth, "JPEG", quality=95)
    sizes = {side: decode_image(file, shortest_side=side).size for side in (None, 151, 150, 75, 37, 1)}
    assert sizes == {None: (500, 300), 151: (500, 300), 150: (250, 150), 75: (125, 75), 37: (63, 38), 1: (63, 38)}
    half = np.asarray(decode_image(file, shortest_side=150)).astype(int)
    assert np.abs(half - np.asarray(smooth.resize((250, 150), Image.Resampling.BOX))).mean() < 2
    assert decode_image(encode(smooth, "PNG"), shortest_side=150).size == (500, 300)
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode_image(encode(smooth, "JPEG", exif=exif), shortest_side=150).size == (150, 250)


def test_a_damaged_exif_block_counts_as_upright():
    content = encode(Image.fromarray(noise(4, 6)), "PNG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    assert decode_image(content).size == (6, 4)


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_frame_of_an_animation(format):
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, GREEN, BLUE)]
    options = {"lossless": True} if format == "WEBP" else {}
    content = encode(frames[0], format, save_all=True, append_images=frames[1:], **options)
    assert Image.open(io.BytesIO(content)).n_frames == 3
    assert pixel(decode_image(content)) == RED


def test_tiny_images_are_used_and_known():
    for size in ((1, 1), (1, 9), (9, 1)):
        image = decode_image(encode(Image.new("RGB", size, RED), "PNG"))
        assert image.size == size and is_tiny(image)
    assert not is_tiny(Image.new("RGB", (2, 2)))


# Damage and size


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"])
def test_a_truncated_file_is_refused_by_row_and_path(format, tmp_path):
    content = encode(Image.fromarray(noise(64, 64)), format)
    path = tmp_path / "half.img"
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"'image', row 17 \(file '.*half.img'\)"):
        decode_image(path, where=WHERE)
    with pytest.raises(ValueError, match=r"'image', row 17 \(file 'a.img'\)"):
        decode_image({"bytes": path.read_bytes(), "path": "a.img"}, where=WHERE)
    with pytest.raises(ValueError, match="column 'image', row 17 "):
        decode_image(path.read_bytes(), where=WHERE)


def test_every_cut_and_every_flipped_byte_is_an_image_or_a_value_error():
    source = Image.fromarray(noise(12, 12))
    generator = np.random.default_rng(1)
    for format in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "ICO"):
        content = encode(source, format)
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
    content = encode(Image.fromarray(noise(64, 64)), "JPEG")[:-200]
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert decode_image(content).size == (64, 64)


def test_a_text_file_named_jpg(tmp_path):
    path = tmp_path / "page.jpg"
    path.write_text("<!DOCTYPE html><html>404</html>")
    with pytest.raises(ValueError, match=r"row 17 \(file '.*page.jpg'\) .*supported .*<!DOCTYPE html>"):
        decode_image(str(path), where=WHERE)
    with pytest.raises(ValueError, match="row 17 .*0 bytes"):
        decode_image(b"", where=WHERE)


def test_a_missing_file_and_a_folder(tmp_path):
    missing = tmp_path / "gone.jpg"
    for value in (missing, str(missing), {"bytes": None, "path": str(missing)}):
        with pytest.raises(FileNotFoundError, match="'image', row 17 .*'.*gone.jpg'"):
            decode_image(value, where=WHERE)
    with pytest.raises(OSError, match="'image', row 17 .*cannot be read"):
        decode_image(tmp_path, where=WHERE)


@pytest.mark.parametrize("size", [(60_000, 60_000), (MAX_IMAGE_PIXELS // 8 + 1, 8)])
@pytest.mark.parametrize("pillow_limit", [None, 1, Image.MAX_IMAGE_PIXELS])
def test_a_huge_header_is_refused_before_decoding(size, pillow_limit, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pillow_limit)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("pixels were decoded"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="row 17 has .* 178,956,970 .*max_image_pixels"):
            decode_image(png_header(*size), where=WHERE)
    assert pillow_limit == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("action", ["default", "always", "error"])
def test_pillows_own_warning_does_not_stand_beside_our_error(action):
    size = (MAX_IMAGE_PIXELS // 8 + 1, 8)  # between one and two times the limit, where Pillow only warns
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        with pytest.raises(ValueError, match="row 17 has .*max_image_pixels"):
            decode_image(png_header(*size), where=WHERE)
    assert not caught


def test_the_limit_is_ours_and_inclusive(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    content = encode(Image.new("RGB", (10, 10)), "PNG")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode_image(content, max_pixels=100).size == (10, 10)
    for value in (content, Image.new("RGB", (10, 10)), np.zeros((10, 10), dtype=np.uint8)):
        with pytest.raises(ValueError, match="limit is 40 pixels"):
            decode_image(value, max_pixels=40)


# Formats

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def test_postscript_is_refused_and_starts_nothing(tmp_path, monkeypatch):
    def fail_on_start(*arguments, **options):
        raise AssertionError("Ghostscript was started")

    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", fail_on_start)
    monkeypatch.setattr("subprocess.Popen", fail_on_start)
    path = tmp_path / "photo.jpg"
    path.write_bytes(EPS)
    for value in (EPS, str(path), {"bytes": EPS, "path": None}):
        with pytest.raises(ValueError, match="row 17 .*(JPEG, PNG, WEBP.*): .*EPS"):
            decode_image(value, where=WHERE)


@pytest.mark.parametrize("format", ["ICNS", "ICO", "PCX", "TGA", "SGI", "JPEG2000", "PDF"])
def test_rare_formats_are_refused(format):
    content = encode(Image.new("RGB", (32, 32), "red"), format)
    with pytest.raises(ValueError, match="row 17 is not .*(looks like|starts with)"):
        decode_image(content, where=WHERE)


@pytest.mark.parametrize("format", ["JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"])
def test_listed_formats_are_read(format):
    Image.init()
    if format not in Image.SAVE:
        pytest.skip(f"this Pillow writes no {format}")
    more = {"save_all": True, "append_images": [Image.new("RGB", (8, 8), "blue")]} if format == "MPO" else {}
    image = decode_image(encode(Image.new("RGB", (8, 8), "red"), format, **more), where=WHERE)
    assert image.size == (8, 8)
    assert np.abs(np.array(pixel(image)) - RED).max() < 12
