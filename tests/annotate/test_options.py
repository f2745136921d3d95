"""The models of an annotation from options."""

from __future__ import annotations

import pytest

from hfcomp.annotate.models import load_inpainter, load_segmenter
from hfcomp.annotate.options import ModelOptions
from tests.annotate.models import clipseg, inpainting


@pytest.mark.parametrize(
    "settings",
    [{"inpaint_steps": 0}, {"inpaint_size": 0}, {"inpaint_guidance": -1.0}, {"inpaint_guidance": float("nan")}],
)
def test_settings_out_of_range_are_refused_before_anything_is_loaded(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name}: found .*, expected"):
        ModelOptions(**settings)


def test_options_make_the_models(tmp_path):
    options = ModelOptions(
        segmenter=str(clipseg(tmp_path / "clipseg")),
        inpainter=str(inpainting(tmp_path / "inpainting")),
        **{"inpaint_steps": 3, "inpaint_guidance": 2.0, "inpaint_size": 64, "device": "cpu"},
    )
    assert load_segmenter(options).device == "cpu"
    assert load_inpainter(options).identity.endswith("3 steps, guidance 2.0, 64 pixels")
