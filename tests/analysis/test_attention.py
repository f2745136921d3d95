"""Attention of image tokens for phrases: values by hand, places in the image, and what the picture says (7 s)."""

from __future__ import annotations

import math
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.text import Text
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import AutoModel, AutoProcessor

from hfcomp.analysis.attention import (
    TokenCosines,
    attention,
    best_token,
    difference,
    evenness,
    seen_box,
    token_cosines,
)
from hfcomp.analysis.attention_figure import attention_maps, draw_attention
from hfcomp.data.pixels import PixelTransform
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.modeling import encode_image_tokens
from hfcomp.modeling.image_processors import CLIPImageProcessorPil, SiglipImageProcessorPil
from tests import tiny, tolerances

WHOLE = (0.0, 0.0, 1.0, 1.0)
PHRASES = ["a red cube", "blue ball"]


def unit(values: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(values.detach().double(), dim=-1).numpy()


def test_cosines_are_those_of_the_model_s_own_processor_in_reading_order(model_folder):
    image = tiny.image(3, (50, 40))
    similarities = token_cosines(Embedder(model_folder, device="cpu"), image, PHRASES)
    model, processor = AutoModel.from_pretrained(model_folder), AutoProcessor.from_pretrained(model_folder)
    length = {"padding": "max_length", "max_length": tiny.TEXT_LENGTH} if "siglip" in model_folder.name else {}
    inputs = processor(images=image, text=PHRASES, return_tensors="pt", **{"padding": True, **length})
    with torch.inference_mode():
        output = model(input_ids=inputs["input_ids"], pixel_values=inputs["pixel_values"])
        tokens = encode_image_tokens(model, inputs["pixel_values"])[1][0]
    texts = unit(output.text_embeds)
    assert similarities.pooled == pytest.approx((texts @ unit(output.image_embeds).T)[:, 0], abs=tolerances.cosine())
    assert similarities.tokens.shape == (2, 2, 2) and np.ptp(similarities.tokens) > 0.01
    for token, place in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        assert similarities.tokens[:, *place] == pytest.approx(texts @ unit(tokens[token]), abs=tolerances.cosine())
    assert similarities.truncated == [False, False]


def test_truncated_phrases_are_marked(siglip):
    similarities = token_cosines(Embedder(siglip, device="cpu"), tiny.image(0), ["red", "red ball " * 40])
    assert similarities.truncated == [False, True]


def test_an_adapter_s_dropout_is_off(clip, tmp_path):
    settings = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], lora_dropout=0.5, init_lora_weights=False)
    get_peft_model(AutoModel.from_pretrained(clip), settings).save_pretrained(tmp_path)
    embedder = Embedder(tmp_path, device="cpu")
    first, second = (token_cosines(embedder, tiny.image(0), PHRASES).tokens for _ in range(2))
    assert (first == second).all()
    assert np.abs(first - token_cosines(Embedder(clip, device="cpu"), tiny.image(0), PHRASES).tokens).max() > 1e-3


@pytest.mark.parametrize(("phrases", "match"), [([], "phrases"), (["red", " "], "found ' ', expected words")])
def test_phrases_need_words(siglip, phrases, match):
    with pytest.raises(ValueError, match=match):
        token_cosines(Embedder(siglip, device="cpu"), tiny.image(0), phrases)


def test_broken_weights_are_refused(clip, monkeypatch):
    monkeypatch.setattr(
        "hfcomp.modeling.encode_image_tokens", lambda *_: (torch.ones(1, 16), torch.full((1, 4, 16), math.nan))
    )
    with pytest.raises(ValueError, match="NaN or infinite"):
        token_cosines(Embedder(clip, device="cpu"), tiny.image(0), PHRASES)


def test_attention_is_a_multiple_of_its_mean():
    cosines = np.array([[[0.0, math.log(2)], [0.0, 0.0]]])
    assert attention(cosines)[0] == pytest.approx(np.array([[0.8, 1.6], [0.8, 0.8]]))
    assert attention(cosines, 0.5)[0] == pytest.approx(np.array([[4, 16], [4, 4]]) / 7)
    assert attention(cosines, 1e-5)[0] == pytest.approx(np.array([[0, 4], [0, 0]]))
    assert attention(cosines - 0.3) == pytest.approx(attention(cosines))


@pytest.mark.parametrize("temperature", [0, -1, math.inf, math.nan])
def test_a_temperature_is_above_0(temperature):
    with pytest.raises(ValueError, match="number above 0"):
        attention(np.zeros((2, 2)), temperature)


def test_evenness_is_the_share_of_the_largest_entropy():
    even, single, half = np.ones((2, 2)), np.array([[4.0, 0], [0, 0]]), np.array([[2.0, 2], [0, 0]])
    assert evenness(np.stack([even, single, half])) == pytest.approx([1, 0, 0.5])
    assert evenness(np.ones((3, 1, 1))) == pytest.approx([1, 1, 1])


def test_the_best_token_is_found_by_row_and_column():
    assert best_token(np.array([[1.0, 5], [2, 3], [5, 0]])) == (0, 1)


@pytest.mark.parametrize(
    ("first", "first_box", "second", "second_box", "change", "box"),
    [
        ([[1, 2], [3, 4]], WHOLE, [[2, 2], [5, 1]], WHOLE, [[1, 0], [2, -3]], WHOLE),
        # a finer cell over the border of two others has their mean
        ([[0, 6]], WHOLE, [[1, 1, 1]], WHOLE, [[1, -2, -5]], WHOLE),
        ([[1, 1, 1]], WHOLE, [[0, 6]], WHOLE, [[-1, 2, 5]], WHOLE),
        ([[0], [6]], WHOLE, [[1, 2]], WHOLE, [[1, 2], [-5, -4]], WHOLE),
        # the second model sees the middle half
        ([[0, 6]], WHOLE, [[1, 1]], (0.25, 0, 0.75, 1), [[1, -5]], (0.25, 0, 0.75, 1)),
        ([[1], [2]], (0, 0.25, 1, 0.75), [[5], [5], [7], [7]], WHOLE, [[4], [5]], (0, 0.25, 1, 0.75)),
    ],
)
def test_differences_are_taken_place_by_place(first, first_box, second, second_box, change, box):
    values, where = difference(np.array(first, float), first_box, np.array(second, float), second_box)
    assert values == pytest.approx(np.array(change, float)) and where == pytest.approx(box)


@pytest.mark.parametrize(
    ("size", "box"),
    [
        ((64, 32), (1 / 4, 0, 3 / 4, 1)),
        ((32, 64), (0, 1 / 4, 1, 3 / 4)),
        ((48, 48), WHOLE),
        # 47 pixels wide before the crop of 32, which starts at a whole one
        ((640, 427), (7 / 47, 0, 39 / 47, 1)),
        ((2000, 300), (90 / 213, 0, 122 / 213, 1)),
    ],
)
def test_the_box_is_what_resize_and_crop_leave(clip, siglip, size, box):
    processors = [AutoProcessor.from_pretrained(folder) for folder in (clip, siglip)]
    boxes = [seen_box(PixelTransform.from_processor(processor), size) for processor in processors]
    assert boxes[0] == pytest.approx(box, abs=0.005) and boxes[1] == WHOLE


def test_the_box_of_a_padded_image_is_larger_than_it():
    processor = CLIPImageProcessorPil(do_resize=False, crop_size={"height": 48, "width": 48})
    box = seen_box(PixelTransform.from_processor(processor), (24, 48))
    assert box == pytest.approx((-0.5, 0, 1.5, 1), abs=0.01)


def test_images_without_room_for_patches_are_refused(clip):
    transform = PixelTransform.from_processor(AutoProcessor.from_pretrained(clip))
    with pytest.raises(ValueError, match="300 x 4 pixels.*16"):
        seen_box(transform, (300, 4))


def test_pixels_beyond_the_last_whole_patch_are_not_covered(monkeypatch):
    transform = PixelTransform.from_processor(SiglipImageProcessorPil(size={"height": 40, "width": 56}))
    monkeypatch.setattr(
        "hfcomp.modeling.encode_image_tokens", lambda *_: (torch.ones(1, 1), torch.arange(6.0).view(1, 6, 1))
    )
    embedder = SimpleNamespace(
        transform=transform,
        texts=lambda phrases: SimpleNamespace(vectors=np.ones((1, 1))),
        tokenizer=lambda phrases: ([[1]], [False]),
        device="cpu",
        backbone=torch.nn.Identity(),
        config=SimpleNamespace(vision_config=SimpleNamespace(patch_size=16)),
    )
    similarities = token_cosines(embedder, tiny.image(0, (80, 80)), ["red"])
    assert similarities.tokens[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert similarities.box == pytest.approx((0, 0, 48 / 56, 32 / 40))


@pytest.fixture
def saved_figures(monkeypatch):
    """The figures that are saved, without the time to render them."""
    figures = []

    def save(figure, path, **options):
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", save)
    return figures


def cosines(seed: int, grid: tuple[int, int] = (3, 3), box=WHOLE, number: int = 2) -> TokenCosines:
    draws = np.random.default_rng(seed)
    return TokenCosines(draws.uniform(size=number), draws.uniform(-0.2, 0.4, (number, *grid)), box, [False] * number)


def maps_of(figure) -> list:
    """Colors over images, by row: those of models, then the difference."""
    return [axes.images[1] for axes in figure.axes if len(axes.images) > 1]


def titles(figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def test_the_figure_shows_both_models_on_one_scale_and_their_difference(tmp_path, saved_figures):
    by_model = {"base": cosines(0), "c2lip": cosines(1)}
    path = draw_attention(tmp_path / "new" / "a.png", tiny.image(0, (60, 40)), ["costs $5 or $6", "ball"], by_model)
    assert [file.name for file in path.parent.iterdir()] == ["a.png"]
    panels = maps_of(saved_figures[0])
    assert len(panels) == 6
    values = [attention(similarity.tokens) for similarity in by_model.values()]
    assert np.asarray(panels[1].get_array()) == pytest.approx(values[1][0])
    assert np.asarray(panels[5].get_array()) == pytest.approx(values[1][1] - values[0][1])
    assert len({panels[index].get_clim() for index in (0, 1, 3, 4)}) == 1
    assert panels[0].get_clim() == pytest.approx((np.min(values), np.max(values)))
    low, high = panels[2].get_clim()
    assert -low == high == np.abs(values[1] - values[0]).max() and panels[5].get_clim() == (low, high)
    texts = titles(saved_figures[0])
    assert texts[0] == "“costs $5 or $6”" and texts[3] == "c2lip\nminus base"
    first = by_model["base"]
    assert texts[1] == f"base\npooled {first.pooled[0]:.3f}, best token {first.tokens[0].max():.3f}"
    dollars = [text for axes in saved_figures[0].axes for text in axes.findobj(Text) if "$" in text.get_text()]
    assert dollars and not any(text.get_parse_math() for text in dollars)


def test_a_large_image_is_drawn_small(tmp_path, saved_figures):
    by_model = {"one": TokenCosines(np.zeros(1), np.zeros((1, 2, 4)), (0.25, 0.0, 0.75, 1.0), [False])}
    draw_attention(tmp_path / "a.png", tiny.image(0, (4096, 2048)), ["ball"], by_model)
    panel = saved_figures[0].axes[1]
    assert all(picture.get_size() == (512, 1024) for picture in (saved_figures[0].axes[0].images[0], panel.images[0]))
    assert panel.images[1].get_extent() == [256, 768, 512, 0]


def test_phrases_that_were_cut_are_marked(tmp_path, saved_figures):
    whole = cosines(0)
    cut = TokenCosines(whole.pooled, whole.tokens, whole.box, [False, True])
    draw_attention(tmp_path / "a.png", tiny.image(0), PHRASES, {"whole": whole, "short": cut})
    assert ["truncated" in title for title in titles(saved_figures[0])[:8]] == [False] * 6 + [True, False]
    assert "Truncated: " in saved_figures[0].get_supxlabel().replace("\n", " ")


def test_long_names_are_within_the_picture(tmp_path):
    by_model = {"a name of two lines above a panel of this width": cosines(0, number=1)}
    draw_attention(tmp_path / "a.png", tiny.image(0, (90, 60)), ["ball"], by_model)
    with Image.open(tmp_path / "a.png") as picture:
        assert (np.asarray(picture.convert("L"))[:3] == 255).all()


def test_the_best_token_is_framed_at_its_place(tmp_path, saved_figures):
    tokens = np.zeros((1, 2, 4))
    tokens[0, 1, 2] = 0.1
    by_model = {"one": TokenCosines(np.zeros(1), tokens, (0.25, 0.0, 0.75, 1.0), [False])}
    draw_attention(tmp_path / "a.png", tiny.image(0, (80, 40)), ["ball"], by_model)
    seen, frame = (
        (*patch.get_xy(), patch.get_width(), patch.get_height()) for patch in saved_figures[0].axes[1].patches[:2]
    )
    assert seen == (20, 0, 40, 40) and frame == (40, 20, 10, 20)
    assert len(maps_of(saved_figures[0])) == 1 and maps_of(saved_figures[0])[0].get_extent() == [20, 60, 40, 0]
    assert "outside the thin line: not seen" in saved_figures[0].get_supxlabel().replace("\n", " ")


def test_rounding_is_not_drawn_as_a_change(tmp_path, saved_figures):
    base = cosines(0)
    other = TokenCosines(base.pooled, base.tokens + 1e-7 * cosines(1).tokens, base.box, base.truncated)
    draw_attention(tmp_path / "a.png", tiny.image(0), PHRASES, {"one": base, "same": other})
    change = maps_of(saved_figures[0])[2]
    assert np.abs(change.get_array()).max() < 1e-3 * change.get_clim()[1]


def test_the_caption_names_grids_and_temperature(tmp_path, saved_figures):
    by_model = {"one": cosines(0), "finer": cosines(1, (4, 4))}
    draw_attention(tmp_path / "a.png", tiny.image(0), PHRASES, by_model, temperature=0.1)
    draw_attention(tmp_path / "b.png", tiny.image(0), PHRASES, by_model, quantity="cosine")
    captions = [figure.get_supxlabel().replace("\n", " ") for figure in saved_figures]
    assert "cosine(token, phrase) / 0.1, times" in captions[0] and "cosine of each image token" in captions[1]
    assert all(re.search("3 x 3 and 4 x 4 tokens; .*4 x 4 cells", text) for text in captions)
    assert maps_of(saved_figures[0])[2].get_array().shape == (4, 4)
    assert maps_of(saved_figures[1])[0].get_clim()[0] == min(
        similarity.tokens.min() for similarity in by_model.values()
    )


def test_the_caption_says_where_models_see_different_parts(tmp_path, saved_figures):
    by_model = {"one": cosines(0, box=(0.25, 0.0, 0.75, 1.0)), "whole": cosines(1, (3, 6)), "same": cosines(2, (3, 6))}
    for names in (("one", "whole"), ("whole", "same")):
        draw_attention(tmp_path / "a.png", tiny.image(0), PHRASES, {name: by_model[name] for name in names})
    captions = [figure.get_supxlabel().replace("\n", " ") for figure in saved_figures]
    assert re.search("3 x 3 cells", captions[0])
    assert "difference" not in captions[1] and "not seen" not in captions[1]


def test_the_color_bars_show_their_range(tmp_path, saved_figures):
    tokens = np.array([[[0.0, 0.001], [0.0, 0.0]]])
    even = TokenCosines(np.zeros(1), tokens, WHOLE, [False])
    draw_attention(tmp_path / "a.png", tiny.image(0), ["ball"], {"even": even, "other": even})
    maps, change = saved_figures[0].axes[-2:]
    assert maps.get_xlabel() == "attention, 1.000 to 1.001 (line: all alike)" and maps.lines[0].get_xdata()[0] == 1
    assert change.get_xlabel() == "change in attention"
    assert [panel.get_cmap().name for panel in maps_of(saved_figures[0])] == ["viridis", "viridis", "PRGn"]


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"a.png.*matplotlib.*pip install 'hfcomp\[plots\]'"):
        draw_attention(tmp_path / "a.png", tiny.image(0), PHRASES, {"one": cosines(0)})


@pytest.mark.parametrize(
    ("names", "quantity", "message"),
    [
        ("", "cosine", "found 0 .* 1 or 2"),
        ("abc", "cosine", "found 3 .* 1 or 2"),
        ("ab", "heat", "quantity: found 'heat'.* attention .*cosine"),
    ],
)
def test_other_maps_are_refused(names, quantity, message):
    with pytest.raises(ValueError, match=message):
        attention_maps({name: cosines(0) for name in names}, quantity=quantity, temperature=1.0)
