"""Pipelines: which are taken, where they run, and that an image's edit depends on nothing beside it."""

from __future__ import annotations

import shutil
import sys

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from hfcomp.data.images import decode_image
from hfcomp.factory.images import editor as editors
from hfcomp.factory.images.editor import ImageEditor, describe_pipeline, library_versions, resolve_dtype, worker_device
from hfcomp.testing import write_tiny_sdxl
from hfcomp.workers import set_worker_number
from tests.factory.images import pipelines
from tests.factory.images.photographs import SIZE, photograph

SETTINGS = {"steps": 4, "strength": 0.75, "guidance": 0.0, "size": SIZE, "dtype": "float32", "device": "cpu"}


def open_editor(place, **changes) -> ImageEditor:
    return ImageEditor(str(place), **{"batch_size": 4, **SETTINGS, **changes})


@pytest.fixture(scope="module")
def editor(sdxl) -> ImageEditor:
    return open_editor(sdxl)


@pytest.fixture(scope="module")
def images(editor) -> list[Image.Image]:
    return [editor.fit(decode_image(photograph(number))) for number in range(14)]


def edit_images(editor: ImageEditor, images: list[Image.Image], numbers: list[int]) -> dict[int, bytes]:
    edits = editor.edit([images[n] for n in numbers], [f"{n} cats" for n in numbers], [1000 + n for n in numbers])
    return {number: edit.image.tobytes() for number, edit in zip(numbers, edits, strict=True)}


def test_other_images_of_a_batch_change_nothing(editor, images):
    whole = edit_images(editor, images, list(range(14)))
    assert len(set(whole.values())) == 14
    backwards = edit_images(editor, images, list(reversed(range(14))))
    assert backwards == whole
    assert all(edit_images(editor, images, [number])[number] == whole[number] for number in range(0, 14, 3))


def test_the_number_of_threads_changes_nothing(sdxl):
    editor, before = open_editor(sdxl, size=128), torch.get_num_threads()  # large enough to be split between threads
    images = [editor.fit(decode_image(photograph(number))) for number in range(2)]
    whole = edit_images(editor, images, [0, 1])
    try:
        torch.set_num_threads(2)
        assert edit_images(editor, images, [0, 1]) == whole
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_prompt_the_image_and_the_seed_decide(editor, images):
    first = editor.edit(images[:1], ["a cat"], [0])[0].image
    assert editor.edit(images[:1], ["a cat"], [0])[0].image.tobytes() == first.tobytes()
    others = [(images[1], "a cat", 0), (images[0], "a toaster", 0), (images[0], "a cat", 1)]
    assert all(editor.edit([i], [p], [s])[0].image.tobytes() != first.tobytes() for i, p, s in others)
    assert first.size == (SIZE, SIZE)


def test_the_center_of_an_image_is_edited(editor):
    picture = Image.new("RGB", (90, 30), "red")
    picture.paste("blue", (30, 0, 60, 30))
    (red, _), (green, _), (least_blue, _) = editor.fit(picture).getextrema()
    assert (red, green) == (0, 0) and least_blue >= 240  # the filter reaches a pixel over the edge


@pytest.mark.parametrize("flags", [True, False])
def test_the_safety_checker_is_kept(tmp_path, clip, images, flags):
    place = pipelines.stable_diffusion(tmp_path / "sd", clip, flags=flags)
    edits = open_editor(place, guidance=2.0).edit(images[:2], ["a cat", "a dog"], [0, 1])
    assert [edit.is_blanked for edit in edits] == [flags, flags]
    assert (edits[0].image.getextrema() == ((0, 0),) * 3) == flags


def test_diffusers_does_not_warn_at_each_batch(sdxl, images, capfd, recwarn):
    from diffusers.utils import logging

    before = logging.get_verbosity()
    open_editor(sdxl).edit(images[:5], ["word " * 200] * 5, [0] * 5)
    assert "float32" not in (errors := capfd.readouterr().err) and "truncated" not in errors
    assert logging.get_verbosity() == before
    assert not [warning for warning in recwarn if issubclass(warning.category, FutureWarning)]


def test_long_prompts_are_known(editor):
    assert editor.prompt_tokens == 77
    assert not editor.is_cut("a cat") and editor.is_cut("word " * 200)


def test_a_batch_that_does_not_fit_is_named(editor, images, monkeypatch):
    def run_out(**settings):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(editor, "_pipeline", run_out)
    with pytest.raises(ValueError, match="image_batch_size=4 .*32 x 32 .*cpu"):
        editor.edit(images[:1], ["a cat"], [0])


def test_a_size_that_would_be_changed_is_refused(sdxl):
    with pytest.raises(ValueError, match="image_size: found 33, .* 2 .* 32"):
        open_editor(sdxl, size=33)


def test_pickled_weights_are_refused(sdxl, tmp_path):
    place = shutil.copytree(sdxl, tmp_path / "pickled")
    weights = place / "unet" / "diffusion_pytorch_model.safetensors"
    torch.save(load_file(weights), weights.with_suffix(".bin"))
    weights.unlink()
    with pytest.raises(ValueError, match=r"image_pipeline=.*safetensors"):
        open_editor(place)


def test_a_pipeline_of_another_task_is_refused(tmp_path):
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    unet = UNet2DModel(
        sample_size=8, block_out_channels=(32,), down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",)
    )
    DDPMPipeline(unet=unet, scheduler=DDPMScheduler()).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"image_pipeline=.*DDPMPipeline"):
        open_editor(tmp_path)


def test_a_pipeline_without_a_strength_is_refused(sdxl, monkeypatch):
    monkeypatch.setattr(editors, "PARAMETERS", ("prompt", "power"))
    with pytest.raises(ValueError, match="StableDiffusionXLImg2ImgPipeline .*power"):
        open_editor(sdxl)


def test_facts_change_with_the_weights_and_name_no_place(sdxl, clip, tmp_path):
    copy, other = shutil.copytree(sdxl, tmp_path / "sdxl"), write_tiny_sdxl(tmp_path / "b" / "sdxl", clip, seed=1)
    assert describe_pipeline(str(copy)) == describe_pipeline(str(sdxl)) != describe_pipeline(str(other))
    assert str(tmp_path) not in describe_pipeline(str(copy)) and "sdxl (sha256:" in describe_pipeline(str(copy))
    config = copy / "scheduler" / "scheduler_config.json"
    config.write_text(config.read_text().replace("trailing", "leading"))
    assert describe_pipeline(str(copy)) != describe_pipeline(str(sdxl))


@pytest.mark.parametrize("place", ["/no/such/folder", "{empty}"])
def test_a_missing_pipeline_is_named(tmp_path, place):
    place = place.format(empty=tmp_path)
    for call in (describe_pipeline, open_editor):
        with pytest.raises(ValueError, match=f"image_pipeline={place}: (no such folder|.* model_index.json)"):
            call(place)


def test_without_diffusers_the_extra_is_named(sdxl, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(ImportError, match=r"pip install 'hfcomp\[generate\]'"):
        open_editor(sdxl)
    monkeypatch.setattr(editors, "version", lambda name: (_ for _ in ()).throw(editors.PackageNotFoundError(name)))
    with pytest.raises(ImportError, match=r"pip install 'hfcomp\[generate\]'"):
        library_versions()


def test_each_worker_takes_the_next_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    try:
        for number, device in enumerate(["cuda:0", "cuda:1", "cuda:0"]):
            set_worker_number(number)
            assert worker_device(None) == device
        assert worker_device("cuda:1") == "cuda:1"
    finally:
        set_worker_number(0)
    assert (resolve_dtype("auto", None), resolve_dtype("auto", "cpu")) == ("float16", "float32")
    assert resolve_dtype("bfloat16", None) == "bfloat16"


def test_a_gpu_less_machine_computes_in_float32():
    assert (worker_device(None), resolve_dtype("auto", None)) == ("cpu", "float32")
