"""The segmenter and the inpainter, at a tiny size."""

from __future__ import annotations

import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version
from PIL import Image
from safetensors.torch import load_file, save_file

from hfcomp.annotate.models import Inpainter, Segmenter
from hfcomp.data.annotations.masks import changed_outside, compose, read_mask, threshold_mask
from hfcomp.testing import write_tiny_sdxl
from tests.annotate.models import clipseg, inpainting


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return clipseg(tmp_path_factory.mktemp("clipseg"))


@pytest.fixture(scope="module")
def segmenter(folder) -> Segmenter:
    return Segmenter(str(folder))


def photograph(width: int = 90, height: int = 60) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


# Image processors of older transformers take the three channels of a single pixel for three rows.
SINGLE = pytest.param(
    (1, 1),
    marks=pytest.mark.skipif(
        Version(transformers.__version__) < Version("5.4"), reason="reads 1 x 1 wrongly before 5.4"
    ),
)


@pytest.mark.parametrize("size", [(90, 60), SINGLE, (3, 200), (900, 2), (32, 32)])
def test_each_pixel_has_a_probability(segmenter, size):
    heat = segmenter.probability_map(photograph(*size), "a red cube")
    assert heat.shape == size[::-1] and heat.dtype == np.float32
    assert np.isfinite(heat).all() and heat.min() >= 0 and heat.max() <= 1


def test_the_prompt_and_the_image_decide(segmenter):
    image = photograph()
    heat = segmenter.probability_map(image, "a red cube")
    assert (segmenter.probability_map(image, "  a red cube ") == heat).all()
    assert (segmenter.probability_map(image, "a blue ball") != heat).any()
    assert (segmenter.probability_map(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), "a red cube") != heat).any()


def test_probabilities_are_those_of_the_network(segmenter):
    """At the model's own size nothing is scaled: the reference calls the network by hand."""
    side = segmenter._model.config.vision_config.image_size
    image = photograph(side, side)
    inputs = segmenter._processor(text=["a red cube"], images=[image], return_tensors="pt")
    with torch.inference_mode():
        logits = segmenter._model(**inputs).logits
    assert (
        np.abs(segmenter.probability_map(image, "a red cube") - logits.sigmoid().reshape(side, side).numpy()).max()
        < 1e-6
    )


@pytest.mark.parametrize("size", [(600, 100), (100, 600), (640, 480)])
def test_probabilities_lie_where_their_pixels_came_from(segmenter, monkeypatch, size):
    """A network that finds white: the processor squeezes the image, and the heat is stretched back."""

    def network(pixel_values, **_):
        scaled = torch.nn.functional.interpolate(pixel_values, (352, 352), mode="bilinear")
        return SimpleNamespace(logits=20 * scaled.mean(1))

    monkeypatch.setattr(segmenter, "_model", network)
    width, height = size
    image = Image.new("RGB", size, "black")
    box = (width * 6 // 10, height * 2 // 10, width * 9 // 10, height * 5 // 10)
    image.paste("white", box)
    expected = np.zeros((height, width), dtype=bool)
    expected[box[1] : box[3], box[0] : box[2]] = True
    wrong = threshold_mask(segmenter.probability_map(image, "white"), 0.5) != expected
    assert wrong.mean() < 0.08 and expected.mean() == pytest.approx(0.09, abs=0.01)
    ys, xs = np.nonzero(wrong)  # at the edges alone, within a pixel of the tiny network's square
    near_x = np.minimum(np.abs(xs - box[0]), np.abs(xs - box[2])) <= width / 16
    near_y = np.minimum(np.abs(ys - box[1]), np.abs(ys - box[3])) <= height / 16
    assert (near_x | near_y).all()


def test_a_long_prompt_is_cut(segmenter):
    assert segmenter.probability_map(photograph(), "a red cube " * 200).shape == (60, 90)


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_an_empty_prompt_is_refused(segmenter, prompt):
    with pytest.raises(ValueError, match="mask prompt .*empty"):
        segmenter.probability_map(photograph(), prompt)


def test_two_loads_of_a_folder_have_one_identity(segmenter, folder):
    assert Segmenter(str(folder)).identity == segmenter.identity


def test_another_kind_of_model_is_refused(clip):
    with pytest.raises(ValueError, match="segmenter=.*'clip'.*'clipseg'"):
        Segmenter(str(clip))


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="segmenter=.*nowhere.*CLIPSeg"):
        Segmenter(str(tmp_path / "nowhere"))


def test_weights_without_safetensors_are_refused_with_how_to_convert_them(folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "model")
    torch.save(load_file(place / "model.safetensors"), place / "pytorch_model.bin")
    (place / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"(?s)safetensors.*pytorch_model.bin.*save_pretrained"):
        Segmenter(str(place))


def test_a_checkpoint_without_the_decoder_is_refused(folder, tmp_path):
    """transformers would draw its weights at random, and every mask would be noise."""
    place = shutil.copytree(folder, tmp_path / "model")
    tensors = load_file(place / "model.safetensors")
    save_file({name: tensor for name, tensor in tensors.items() if "decoder" not in name}, place / "model.safetensors")
    with pytest.raises(ValueError, match="segmenter=.*lack.*decoder"):
        Segmenter(str(place))


def test_damaged_weights_are_refused(folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "model")
    content = (place / "model.safetensors").read_bytes()
    (place / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="damaged or truncated"):
        Segmenter(str(place))


def test_half_precision_weights_work_on_a_cpu(folder, segmenter, tmp_path):
    place = shutil.copytree(folder, tmp_path / "model")
    tensors = load_file(place / "model.safetensors")
    half = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    save_file(half, place / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(settings | {"dtype": "float16"}))
    image = photograph()
    heat = Segmenter(str(place)).probability_map(image, "a red cube")
    assert np.abs(heat - segmenter.probability_map(image, "a red cube")).max() < 0.01


SETTINGS = {"steps": 2, "size": 64}


@pytest.fixture(scope="module")
def painting_folder(tmp_path_factory):
    return inpainting(tmp_path_factory.mktemp("inpainting"))


@pytest.fixture(scope="module")
def inpainter(painting_folder) -> Inpainter:
    return Inpainter(str(painting_folder), **SETTINGS)


def middle(image: Image.Image) -> np.ndarray:
    mask = np.zeros((image.height, image.width), dtype=bool)
    mask[image.height // 3 : image.height // 2 + 1, image.width // 3 : image.width // 2 + 1] = True
    return mask


def paint_images(
    inpainter: Inpainter, image: Image.Image, seeds: list[int], prompt: str = "a red cube"
) -> list[bytes]:
    return [candidate.image.tobytes() for candidate in inpainter.paint(image, middle(image), prompt, seeds)]


def test_a_candidate_depends_on_its_own_seed_alone(inpainter, painting_folder):
    image = photograph()
    first, second, third = paint_images(inpainter, image, [1, 2, 3])
    assert len({first, second, third}) == 3
    assert paint_images(inpainter, image, [3, 1]) == [third, first]
    assert paint_images(Inpainter(str(painting_folder), **SETTINGS), image, [2]) == [second]
    assert paint_images(inpainter, image, [1], "a blue ball") != [first]


@pytest.mark.parametrize("size", [(90, 60), (33, 35), (8, 5), (400, 12), (7, 300)])
def test_candidates_have_the_size_of_the_image(inpainter, size):
    image = photograph(*size)
    (candidate,) = inpainter.paint(image, middle(image), "a red cube", [0])
    assert candidate.image.size == size and not candidate.is_blanked
    mask = middle(image)
    assert changed_outside(image, compose(image, candidate.image, mask), mask) == 0


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
    assert paint_images(inpainter, image, [1]) == paint_images(inpainter, image.convert("RGB"), [1])


def test_what_the_safety_checker_blanked_is_reported(inpainter, monkeypatch):
    output = type("Output", (), {"images": [Image.new("RGB", (64, 48))], "nsfw_content_detected": [True]})
    monkeypatch.setattr(inpainter, "_pipeline", lambda **_: output)
    assert inpainter.paint(photograph(), middle(photograph()), "a red cube", [0])[0].is_blanked


def test_too_little_memory_is_a_clear_error(inpainter, monkeypatch):
    def call(**_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(inpainter, "_pipeline", call)
    with pytest.raises(ValueError, match=r"cpu .*64 x 40 pixels.*below 64"):
        inpainter.paint(photograph(), middle(photograph()), "a red cube", [0])


@pytest.mark.parametrize("prompt", ["", " \n "])
def test_an_empty_inpainting_prompt_is_refused(inpainter, prompt):
    with pytest.raises(ValueError, match="inpainting prompt .*empty"):
        inpainter.paint(photograph(), middle(photograph()), prompt, [0])


def test_the_identity_names_the_settings_that_change_images(painting_folder, inpainter):
    assert Inpainter(str(painting_folder), **SETTINGS).identity == inpainter.identity
    others = [Inpainter(str(painting_folder), **SETTINGS | change).identity for change in ({"steps": 3}, {"size": 96})]
    assert len({inpainter.identity, *others}) == 3


def test_sdxl_paints_too(clip, tmp_path):
    """A pipeline that is not made for inpainting is used as diffusers makes one of it."""
    write_tiny_sdxl(tmp_path / "sdxl", clip)
    image = photograph()
    (candidate,) = Inpainter(str(tmp_path / "sdxl"), **SETTINGS).paint(image, middle(image), "a red cube", [0])
    assert candidate.image.size == image.size


@pytest.mark.parametrize("kind", ["FluxFillPipeline", "CogVideoXPipeline"])
def test_other_classes_of_pipelines_are_loaded_as_what_paints_or_refused(painting_folder, tmp_path, kind, monkeypatch):
    place = shutil.copytree(painting_folder, tmp_path / "pipeline")
    index = json.loads((place / "model_index.json").read_text())
    (place / "model_index.json").write_text(json.dumps(index | {"_class_name": kind}))
    asked = []

    def load(place, dtype, device, *, kind, setting):
        asked.append(kind)
        raise ValueError("loaded")

    if kind == "FluxFillPipeline":
        monkeypatch.setattr("hfcomp.annotate.models.load_pipeline", load)
        with pytest.raises(ValueError, match="loaded"):
            Inpainter(str(place), **SETTINGS)
        assert asked == [kind]
    else:
        with pytest.raises(ValueError, match="inpainter=.*CogVideoX"):
            Inpainter(str(place), **SETTINGS)


def test_a_pipeline_of_other_arguments_is_refused(painting_folder, monkeypatch):
    class Other:
        def __call__(self, prompt, image, mask_image, generator):
            """Another call."""

    monkeypatch.setattr("hfcomp.annotate.models.load_pipeline", lambda *_, **__: Other())
    with pytest.raises(ValueError, match="guidance_scale, height, num_inference_steps, width"):
        Inpainter(str(painting_folder), **SETTINGS)


def test_a_missing_pipeline_is_refused(tmp_path):
    with pytest.raises(ValueError, match="inpainter=.*nowhere.*no such folder"):
        Inpainter(str(tmp_path / "nowhere"))


def test_without_diffusers_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(ImportError, match="pip install"):
        Inpainter("some/pipeline")
