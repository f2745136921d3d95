"""Settings of negative images: what runs no step, or makes no sense, is an error before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.factory.images.options import ImageOptions, denoising_steps


def options(**changes) -> ImageOptions:
    return ImageOptions(source="rows.jsonl", output=Path("out"), **changes)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 50, 100])
def test_steps_are_those_that_a_pipeline_runs(sdxl, steps):
    from diffusers import AutoPipelineForImage2Image

    pipeline = AutoPipelineForImage2Image.from_pretrained(sdxl, trust_remote_code=False)
    ran = 0
    for strength in (0.25, 0.29, 0.33, 0.34, 0.5, 0.57, 0.58, 0.75, 0.99, 1.0):
        pipeline.scheduler.set_timesteps(steps)
        timesteps, _ = pipeline.get_timesteps(steps, strength, "cpu")
        if len(timesteps):
            ran += 1
            assert denoising_steps(steps, strength) == len(timesteps)
        else:
            with pytest.raises(ValueError, match="to 0 steps"):
                denoising_steps(steps, strength)
    assert ran


@pytest.mark.parametrize(("steps", "strength"), [(1, 0.5), (2, 0.4), (3, 0.33), (7, 0.1)])
def test_the_error_names_settings_that_work(steps, strength):
    with pytest.raises(ValueError, match=f"image_steps={steps} x image_strength={strength:g}") as error:
        options(image_steps=steps, image_strength=strength)
    words = str(error.value).rstrip(".").split()
    assert denoising_steps(steps, float(words[words.index("image_strength") + 2])) == 1
    assert denoising_steps(int(words[-1]), strength) == 1


def test_the_default_begins_at_a_noise_level_of_turbo(sdxl):
    from diffusers import AutoPipelineForImage2Image

    pipeline = AutoPipelineForImage2Image.from_pretrained(sdxl, trust_remote_code=False)
    chosen = options()
    pipeline.scheduler.set_timesteps(chosen.image_steps)
    timesteps, _ = pipeline.get_timesteps(chosen.image_steps, chosen.image_strength, "cpu")
    assert [int(level) for level in timesteps] == [749, 499, 249]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_steps": 0}, "image_steps: found 0"),
        ({"image_strength": 0.0}, "image_strength: found 0.0,.* 0"),
        ({"image_strength": 1.5}, "image_strength: found 1.5"),
        ({"image_batch_size": 0}, "image_batch_size: found 0,.* 1"),
        ({"image_size": -8}, "image_size: found -8"),
        ({"image_quality": 100}, "image_quality: found 100,.* 1 .* 95"),
        ({"image_guidance": -1.0}, "image_guidance: found -1"),
        ({"blank_below": float("nan")}, "blank_below: found nan"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        options(**changes)
