"""Weights between a base and a tuned model, against plain loops and PEFT's own scaling."""

from __future__ import annotations

import pytest
import torch
from peft import IA3Config, LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from transformers import AutoModel, CLIPModel

from hfcomp.modeling import checkpoints, load_backbone
from hfcomp.modeling.checkpoints import MODULE_CONFIG_FILE
from hfcomp.modeling.interpolation import Interpolation, load_interpolation
from tests import tiny

TARGETS = ["q_proj", "v_proj", "fc1", "visual_projection"]
EPSILON = torch.finfo(torch.float32).eps


@pytest.fixture(scope="module")
def tuned_model(tmp_path_factory):
    return tiny.clip(tmp_path_factory.mktemp("tuned"), seed=1)


def adapter(base, folder, **settings):
    """An adapter whose every weight was trained away from its start."""
    torch.manual_seed(2)
    model = get_peft_model(AutoModel.from_pretrained(base), LoraConfig(r=4, target_modules=TARGETS, **settings))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            noise = torch.rand_like(parameter) if "magnitude" in name else 0.1 * torch.randn_like(parameter)
            parameter.data += noise
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["clip", "siglip"])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
def test_every_weight_is_that_of_a_plain_loop(kind, alpha, request, tmp_path):
    base, tuned = request.getfixturevalue(kind), getattr(tiny, kind)(tmp_path / "tuned", seed=1)
    state = load_interpolation(base, tuned).set(alpha).state_dict()
    ours, theirs = (load_backbone(place).state_dict() for place in (base, tuned))
    assert state.keys() == ours.keys()
    for name, weight in state.items():
        numbers = (part.flatten().tolist() for part in (weight, ours[name], theirs[name]))
        for value, start, end in zip(*numbers, strict=True):
            # lerp takes a difference, a product and a sum, none larger than twice the larger end
            assert abs(value - (1 - alpha) * start - alpha * end) <= 3 * EPSILON * 2 * max(abs(start), abs(end))
        if alpha in (0.0, 1.0):
            assert torch.equal(weight, (ours if alpha == 0 else theirs)[name])


def test_the_scale_is_a_geometric_mean_as_its_logarithm_is_stored(clip):
    base, tuned = (AutoModel.from_pretrained(clip) for _ in range(2))
    base.logit_scale.data.fill_(10.0).log_()
    tuned.logit_scale.data.fill_(40.0).log_()
    scale = Interpolation(base, tuned).set(0.5).logit_scale.detach().exp()
    assert float(scale) == pytest.approx(20.0)


def test_a_saved_point_of_a_siglip_has_what_sentence_transformers_needs(clip, siglip, tmp_path):
    for place in (clip, siglip):
        load_interpolation(place, place).save(tmp_path / place.name, 0.4)
        assert (tmp_path / place.name / MODULE_CONFIG_FILE).is_file() == (place == siglip)


def test_points_do_not_depend_on_the_ones_before(clip, tuned_model):
    interpolation = load_interpolation(clip, tuned_model)
    first = {name: value.clone() for name, value in interpolation.set(0.4).state_dict().items()}
    interpolation.set(1.0)
    interpolation.set(0.0)
    assert all(torch.equal(value, first[name]) for name, value in interpolation.set(0.4).state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_saved_point_is_the_one_that_was_set_in_the_precision_of_the_tuned_model(clip, dtype, tmp_path):
    tuned = tiny.clip(tmp_path / "tuned", seed=1, dtype=dtype)
    interpolation = load_interpolation(clip, tuned)
    interpolation.save(tmp_path / "point", 0.4)
    read, info = CLIPModel.from_pretrained(tmp_path / "point", dtype="auto", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert read.dtype == dtype
    own = interpolation.set(0.4).state_dict()
    assert all(torch.equal(value.float(), own[name]) for name, value in read.state_dict().items())


def test_a_frozen_tower_is_left_alone(clip, tmp_path):
    model = AutoModel.from_pretrained(clip)
    model.text_projection.weight.data += 1
    model.save_pretrained(tmp_path)
    assert list(load_interpolation(clip, tmp_path)._ends) == ["text_projection.weight"]


@pytest.mark.parametrize(
    "settings", [{}, {"use_rslora": True}, {"bias": "all"}, {"modules_to_save": ["text_projection"]}]
)
def test_of_lora_scaling_the_adapter_is_interpolating_the_merged_weights(clip, settings, tmp_path):
    folder = adapter(clip, tmp_path / "adapter", **settings)
    merged = PeftModel.from_pretrained(AutoModel.from_pretrained(clip), folder).merge_and_unload()
    expected = Interpolation(load_backbone(clip), merged)
    interpolation = load_interpolation(clip, folder)
    for alpha in (0.0, 0.3, 1.0):
        own = expected.set(alpha).state_dict()
        for name, value in interpolation.set(alpha).state_dict().items():
            torch.testing.assert_close(value, own[name], rtol=4 * EPSILON, atol=4 * EPSILON, msg=name)


def test_of_dora_scaling_the_adapter_scales_its_lora_part_and_its_change_of_magnitude(clip, tmp_path):
    folder, alpha = adapter(clip, tmp_path / "adapter", use_dora=True), 0.3
    base = load_backbone(clip).state_dict()
    model = PeftModel.from_pretrained(AutoModel.from_pretrained(clip), folder)
    for name, layer in model.get_base_model().named_modules():
        if isinstance(layer, LoraLayer):  # as PEFT scales it, and merges it with the magnitudes of the point
            layer.scale_layer(alpha)
            vector = layer.lora_magnitude_vector["default"]
            vector.weight.data.lerp_(base[f"{name}.weight"].norm(dim=1), 1 - alpha)
    expected, interpolation = model.merge_and_unload().state_dict(), load_interpolation(clip, folder)
    for name, value in interpolation.set(alpha).state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6, msg=name)
    assert all(torch.equal(value, base[name]) for name, value in interpolation.set(0.0).state_dict().items())
    whole = PeftModel.from_pretrained(AutoModel.from_pretrained(clip), folder).merge_and_unload().state_dict()
    for name, value in interpolation.set(1.0).state_dict().items():
        torch.testing.assert_close(value, whole[name], rtol=1e-5, atol=1e-6, msg=name)
    halfway = (base["visual_projection.weight"] + whole["visual_projection.weight"]) / 2
    assert (
        interpolation.set(0.5).visual_projection.weight - halfway
    ).abs().max() > 1e-3  # not the merged weights' mean


def test_an_adapter_is_saved_as_a_whole_model_in_the_precision_of_its_base(tmp_path):
    base = tiny.clip(tmp_path / "base", dtype=torch.float16)
    folder = adapter(base, tmp_path / "adapter")
    load_interpolation(base, folder).save(tmp_path / "point", 0.5)
    read, info = CLIPModel.from_pretrained(tmp_path / "point", dtype="auto", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and read.dtype == torch.float16


def test_what_was_trained_beside_an_adapter_is_interpolated_too(clip, tmp_path):
    model = get_peft_model(AutoModel.from_pretrained(clip), LoraConfig(target_modules=TARGETS))
    scale = model.get_base_model().logit_scale
    scale.requires_grad_(True).data += 1
    checkpoints.save_encoder(model, torch.nn.Module(), tmp_path)
    interpolation = load_interpolation(clip, tmp_path)
    scales = [float(interpolation.set(alpha).logit_scale.detach()) for alpha in (0.0, 0.25)]
    assert scales == pytest.approx([scale.item() - 1, scale.item() - 0.75])


def test_an_adapter_of_another_base_is_refused(clip, tuned_model, tmp_path):
    folder = adapter(clip, tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"adapter for .*, whose \S+ differs"):
        load_interpolation(tuned_model, folder)
    with pytest.raises(ValueError, match="an adapter.*complete model"):
        load_interpolation(folder, tuned_model)


def test_an_adapter_of_another_kind_is_refused(clip, tmp_path):
    config = IA3Config(target_modules=["k_proj", "fc2"], feedforward_modules=["fc2"])
    get_peft_model(AutoModel.from_pretrained(clip), config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="IA3.* LoRA or DoRA"):
        load_interpolation(clip, tmp_path)


def test_the_first_difference_of_two_architectures_is_named(clip, siglip, tmp_path):
    with pytest.raises(ValueError, match="model_type .*'clip' .*'siglip'"):
        load_interpolation(clip, siglip)
    model = AutoModel.from_pretrained(clip)
    model.config.vision_config.hidden_act = "gelu"
    with pytest.raises(ValueError, match="vision_config.hidden_act .*'quick_gelu' .*'gelu'"):
        Interpolation(load_backbone(clip), model)
    model = AutoModel.from_pretrained(clip)
    model.text_projection = torch.nn.Linear(32, 7, bias=False)
    with pytest.raises(ValueError, match=r"text_projection.weight .*\[\d+, 32\] .*\[7, 32\]"):
        Interpolation(load_backbone(clip), model)
    model.further = torch.nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match="tuned .*weight further"):
        Interpolation(load_backbone(clip), model)


def test_whole_numbers_have_to_be_equal(clip):
    models = [AutoModel.from_pretrained(clip) for _ in range(2)]
    for number, model in enumerate(models):
        model.register_buffer("steps", torch.tensor(number))
    with pytest.raises(ValueError, match="steps .*integers"):
        Interpolation(*models)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_an_alpha_beyond_the_ends_is_refused(clip, tuned_model, alpha):
    with pytest.raises(ValueError, match=r"alpha: found .*, .* 0 .* 1"):
        load_interpolation(clip, tuned_model).set(alpha)
