"""Inpainting: candidates by seed, sizes that pipelines take, and pipelines that are refused."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from hfcomp.annotation.inpainter import Inpainter
from hfcomp.data.annotations.masks import changed_outside, compose, read_mask
from hfcomp.testing import write_tiny_sdxl
from tests.annotation.models import inpainting

SETTINGS = {"steps": 2, "size": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return inpainting(tmp_path_factory.mktemp("inpainting"))


@pytest.fixture(scope="module")
def inpainter(folder) -> Inpainter:
    return Inpainter(str(folder), **SETTINGS)


def photograph(width: int = 90, height: int = 60) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def middle(image: Image.Image) -> np.ndarray:
    mask = np.zeros((image.height, image.width), dtype=bool)
    mask[image.height // 3 : image.height // 2 + 1, image.width // 3 : image.width // 2 + 1] = True
    return mask


def painted(inpainter: Inpainter, image: Image.Image, seeds: list[int], prompt: str = "a red cube") -> list[bytes]:
    return [one.image.tobytes() for one in inpainter.paint(image, middle(image), prompt, seeds)]


def test_a_candidate_depends_on_its_own_seed_alone(inpainter, folder):
    image = photograph()
    first, second, third = painted(inpainter, image, [1, 2, 3])
    assert len({first, second, third}) == 3
    assert painted(inpainter, image, [3, 1]) == [third, first]
    assert painted(Inpainter(str(folder), **SETTINGS), image, [2]) == [second]
    assert painted(inpainter, image, [1], "a blue ball") != [first]


@pytest.mark.parametrize("size", [(90, 60), (33, 35), (8, 5), (400, 12), (7, 300)])
def test_candidates_have_the_size_of_the_image(inpainter, size):
    image = photograph(*size)
    (found,) = inpainter.paint(image, middle(image), "a red cube", [0])
    assert found.image.size == size and not found.is_blanked
    mask = middle(image)
    assert changed_outside(image, compose(image, found.image, mask), mask) == 0


def test_the_pipeline_sees_the_whole_image_scaled_and_every_pixel_of_the_mask(inpainter, monkeypatch):
    seen = {}

    def call(**arguments):
        seen.update(arguments)
        return type("Output", (), {"images": [arguments["image"]], "nsfw_content_detected": None})

    monkeypatch.setattr(inpainter, "_pipeline", call)
    image = photograph(640, 480)
    mask = np.zeros((480, 640), dtype=bool)
    mask[240, 320] = True  # far smaller than a pixel of the scaled image
    inpainter.paint(image, mask, " a red cube ", [5])
    assert seen["image"].size == seen["mask_image"].size == (seen["width"], seen["height"]) == (64, 48)
    assert seen["image"].mode == "RGB" and seen["prompt"] == "a red cube"
    assert read_mask(seen["mask_image"]).sum() == 1 and read_mask(seen["mask_image"])[24, 32]
    assert seen["generator"].initial_seed() == 5 and seen["generator"].device.type == "cpu"
    assert (seen["num_inference_steps"], seen["guidance_scale"]) == (2, 7.5)


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA", "P"])
def test_images_of_other_modes_are_painted_as_rgb(inpainter, mode):
    image = photograph().convert(mode)
    assert painted(inpainter, image, [1]) == painted(inpainter, image.convert("RGB"), [1])


def test_what_the_safety_checker_blanked_is_reported(inpainter, monkeypatch):
    output = type("Output", (), {"images": [Image.new("RGB", (64, 48))], "nsfw_content_detected": [True]})
    monkeypatch.setattr(inpainter, "_pipeline", lambda **_: output)
    assert inpainter.paint(photograph(), middle(photograph()), "a red cube", [0])[0].is_blanked


def test_too_little_memory_is_a_clear_error(inpainter, monkeypatch):
    def call(**_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(inpainter, "_pipeline", call)
    with pytest.raises(ValueError, match=r"memory of cpu is too small to paint 64 x 40.*smaller size than 64"):
        inpainter.paint(photograph(), middle(photograph()), "a red cube", [0])


@pytest.mark.parametrize("prompt", ["", " \n "])
def test_an_empty_prompt_is_refused(inpainter, prompt):
    with pytest.raises(ValueError, match="inpainting prompt is empty"):
        inpainter.paint(photograph(), middle(photograph()), prompt, [0])


def test_the_identity_names_the_settings_that_change_images(folder, inpainter):
    assert Inpainter(str(folder), **SETTINGS).identity == inpainter.identity
    others = [Inpainter(str(folder), **SETTINGS | change).identity for change in ({"steps": 3}, {"size": 96})]
    assert len({inpainter.identity, *others}) == 3


def test_sdxl_paints_too(clip, tmp_path):
    """A pipeline that is not made for inpainting is used as diffusers makes one of it."""
    write_tiny_sdxl(tmp_path / "sdxl", clip)
    image = photograph()
    (found,) = Inpainter(str(tmp_path / "sdxl"), **SETTINGS).paint(image, middle(image), "a red cube", [0])
    assert found.image.size == image.size


@pytest.mark.parametrize("kind", ["FluxFillPipeline", "CogVideoXPipeline"])
def test_other_classes_of_pipelines_are_loaded_as_what_paints_or_refused(folder, tmp_path, kind, monkeypatch):
    place = shutil.copytree(folder, tmp_path / "pipeline")
    index = json.loads((place / "model_index.json").read_text())
    (place / "model_index.json").write_text(json.dumps(index | {"_class_name": kind}))
    asked = []

    def load(place, dtype, device, *, kind, setting):
        asked.append(kind)
        raise ValueError("loaded")

    if kind == "FluxFillPipeline":
        monkeypatch.setattr("hfcomp.annotation.inpainter.load_pipeline", load)
        with pytest.raises(ValueError, match="loaded"):
            Inpainter(str(place), **SETTINGS)
        assert asked == [kind]
    else:
        with pytest.raises(ValueError, match="inpainter=.*CogVideoX"):
            Inpainter(str(place), **SETTINGS)


def test_a_pipeline_of_other_arguments_is_refused(folder, monkeypatch):
    class Other:
        def __call__(self, prompt, image, mask_image, generator):
            """Another call."""

    monkeypatch.setattr("hfcomp.annotation.inpainter.load_pipeline", lambda *_, **__: Other())
    with pytest.raises(ValueError, match="Other does not take guidance_scale, height, num_inference_steps, width"):
        Inpainter(str(folder), **SETTINGS)


def test_a_missing_pipeline_is_refused(tmp_path):
    with pytest.raises(ValueError, match="inpainter=.*nowhere.*no such folder"):
        Inpainter(str(tmp_path / "nowhere"))


def test_without_diffusers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(ImportError, match="pip install"):
        Inpainter("some/pipeline")
