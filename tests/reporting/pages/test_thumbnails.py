"""Small pictures inside a page."""

import base64
import io

import numpy as np
from PIL import Image

from hfcomp.reporting.pages.thumbnails import mask_overlay, thumbnail


def opened(found):
    return Image.open(io.BytesIO(base64.b64decode(found.uri.partition(",")[2])))


def test_a_photograph_is_shrunk_to_a_jpeg_and_its_shape_is_kept():
    found = thumbnail(Image.effect_noise((640, 480), 50).convert("RGB"), 224)
    assert found.uri.startswith("data:image/jpeg;base64,")
    assert (found.width, found.height) == opened(found).size == (224, 168)


def test_a_small_drawing_keeps_its_size_and_every_pixel():
    image = Image.new("RGB", (36, 36), "white")
    image.paste((200, 10, 10), (5, 5, 20, 20))
    found = thumbnail(image, 224)
    assert found.uri.startswith("data:image/png") and found[1:] == (36, 36)
    assert np.array_equal(np.asarray(opened(found).convert("RGB")), np.asarray(image))


def test_a_mask_covers_its_area_alone():
    mask = Image.new("L", (100, 50))
    mask.paste(255, (20, 10, 60, 40))
    found = opened(mask_overlay(mask, (200, 100))).convert("RGBA")
    alpha = np.asarray(found)[..., 3]
    assert found.size == (200, 100)
    assert (alpha[30:70, 50:110] == 38).all() and not alpha[:, :30].any()
    assert alpha[19, 60] == 255  # the line
