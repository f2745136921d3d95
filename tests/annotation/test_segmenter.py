"""Segmentation by text: where in the image a probability lies, and which models are refused."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from hfcomp.annotation.segmenter import Segmenter
from hfcomp.data.annotations.masks import above
from tests.annotation.models import clipseg


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return clipseg(tmp_path_factory.mktemp("clipseg"))


@pytest.fixture(scope="module")
def segmenter(folder) -> Segmenter:
    return Segmenter(str(folder))


def photograph(width: int = 90, height: int = 60) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("size", [(90, 60), (1, 1), (3, 200), (900, 2), (32, 32)])
def test_each_pixel_has_a_probability(segmenter, size):
    heat = segmenter.heat(photograph(*size), "a red cube")
    assert heat.shape == size[::-1] and heat.dtype == np.float32
    assert np.isfinite(heat).all() and heat.min() >= 0 and heat.max() <= 1


def test_the_prompt_and_the_image_decide(segmenter):
    image = photograph()
    heat = segmenter.heat(image, "a red cube")
    assert (segmenter.heat(image, "  a red cube ") == heat).all()
    assert (segmenter.heat(image, "a blue ball") != heat).any()
    assert (segmenter.heat(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), "a red cube") != heat).any()


def test_probabilities_are_those_of_the_network(segmenter):
    """At the model's own size nothing is scaled: the reference calls the network by hand."""
    side = segmenter._model.config.vision_config.image_size
    image = photograph(side, side)
    inputs = segmenter._processor(text=["a red cube"], images=[image], return_tensors="pt")
    with torch.inference_mode():
        logits = segmenter._model(**inputs).logits
    assert np.abs(segmenter.heat(image, "a red cube") - logits.sigmoid().reshape(side, side).numpy()).max() < 1e-6


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
    wrong = above(segmenter.heat(image, "white"), 0.5) != expected
    assert wrong.mean() < 0.08 and expected.mean() == pytest.approx(0.09, abs=0.01)
    ys, xs = np.nonzero(wrong)  # at the edges alone, within a pixel of the tiny network's square
    near_x = np.minimum(np.abs(xs - box[0]), np.abs(xs - box[2])) <= width / 16
    near_y = np.minimum(np.abs(ys - box[1]), np.abs(ys - box[3])) <= height / 16
    assert (near_x | near_y).all()


def test_a_long_prompt_is_cut(segmenter):
    assert segmenter.heat(photograph(), "a red cube " * 200).shape == (60, 90)


@pytest.mark.parametrize("prompt", ["", "  \n"])
def test_an_empty_prompt_is_refused(segmenter, prompt):
    with pytest.raises(ValueError, match="mask prompt is empty"):
        segmenter.heat(photograph(), prompt)


def test_two_loads_of_a_folder_have_one_identity(segmenter, folder):
    assert Segmenter(str(folder)).identity == segmenter.identity


def test_another_kind_of_model_is_refused(clip):
    with pytest.raises(ValueError, match="segmenter=.*model type is 'clip', expected 'clipseg'"):
        Segmenter(str(clip))


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="segmenter=.*nowhere.*not a CLIPSeg model"):
        Segmenter(str(tmp_path / "nowhere"))


def test_weights_without_safetensors_are_refused_with_how_to_convert_them(folder, tmp_path):
    place = shutil.copytree(folder, tmp_path / "model")
    torch.save(load_file(place / "model.safetensors"), place / "pytorch_model.bin")
    (place / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"(?s)safetensors.*pytorch_model.bin alone.*save_pretrained"):
        Segmenter(str(place))


def test_a_checkpoint_without_the_decoder_is_refused(folder, tmp_path):
    """transformers would draw its weights at random, and every mask would be noise."""
    place = shutil.copytree(folder, tmp_path / "model")
    tensors = load_file(place / "model.safetensors")
    save_file({name: one for name, one in tensors.items() if "decoder" not in name}, place / "model.safetensors")
    with pytest.raises(ValueError, match="segmenter=.*miss.*decoder"):
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
    half = {name: one.half() if one.is_floating_point() else one for name, one in tensors.items()}
    save_file(half, place / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(settings | {"dtype": "float16"}))
    image = photograph()
    heat = Segmenter(str(place)).heat(image, "a red cube")
    assert np.abs(heat - segmenter.heat(image, "a red cube")).max() < 0.01
