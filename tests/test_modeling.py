"""`DualEncoder` against the plain models of transformers."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel, AutoProcessor, BertConfig, BertModel, CLIPModel, SiglipModel

from hfcomp.data.collators import CompositionalCollator
from hfcomp.fields import FIELDS
from hfcomp.modeling import OBJECTIVE_STATE_FILE, DualEncoder, Features, load_backbone
from tests import tiny, tolerances
from tests.trainers.runs import CHECKPOINTING, assert_same_gradients

LORA = {"r": 2, "target_modules": r".*encoder\.layers\.\d+\.self_attn\.(q|k|v|out)_proj"}
ALL_OF_CLIP = tuple(name for name in FIELDS if name not in ("logit_bias", "learned"))


class Value(nn.Module):
    """A learned number."""

    def __init__(self, value: float = 0.25) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(value))

    def forward(self) -> torch.Tensor:
        return self.a


def encoder(folder, state=None, **settings) -> DualEncoder:
    return DualEncoder(load_backbone(folder), state, **settings).eval()


def batch_for(folder, dataset, size=6) -> dict:
    collator = CompositionalCollator(
        AutoProcessor.from_pretrained(folder),
        load_backbone(folder).config,
        num_negatives=2,
        negative_image=True,
        max_concepts=2,
    )
    batch = collator(dataset.select(range(size)).to_list())
    return {key: value for key, value in batch.items() if key not in ("row", "truncated", "tiny", "cut_concepts")}


@pytest.fixture(scope="module")
def adapter(clip, tmp_path_factory):
    """An adapter's folder, its weights not zero."""
    folder = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(3)
    model = get_peft_model(AutoModel.from_pretrained(clip), LoraConfig(**LORA, init_lora_weights=False))
    model.save_pretrained(folder)
    return folder


# Loading


@pytest.mark.parametrize(("name", "kind"), [("clip", CLIPModel), ("siglip", SiglipModel), ("siglip2", SiglipModel)])
def test_a_folder_of_the_hubs_layout_is_loaded(name, kind, request):
    backbone = load_backbone(request.getfixturevalue(name))
    assert type(backbone) is kind
    assert load_backbone(backbone) is backbone


def test_arguments_reach_from_pretrained(clip):
    assert load_backbone(str(clip), dtype=torch.bfloat16).dtype == torch.bfloat16


def test_an_adapters_folder_becomes_a_trainable_peft_model(clip, adapter):
    backbone = load_backbone(adapter)
    assert isinstance(backbone, PeftModel)
    trainable = [name for name, parameter in backbone.named_parameters() if parameter.requires_grad]
    assert trainable
    assert all("lora_" in name for name in trainable)
    ids = torch.tensor([[0, 5, 6, 1]])
    expected = PeftModel.from_pretrained(AutoModel.from_pretrained(clip), adapter).eval()
    actual = backbone.eval().get_text_features(input_ids=ids).pooler_output
    assert torch.equal(actual, expected.get_text_features(input_ids=ids).pooler_output)
    plain = load_backbone(clip).eval().get_text_features(input_ids=ids).pooler_output
    assert not torch.allclose(actual, plain)


def test_an_adapter_brings_the_scale_that_was_trained_with_it(adapter, tmp_path):
    folder = shutil.copytree(adapter, tmp_path / "adapter")
    save_file({"backbone.base_model.model.logit_scale": torch.tensor(1.5)}, folder / OBJECTIVE_STATE_FILE)
    assert load_backbone(folder).get_base_model().logit_scale.item() == 1.5


def test_an_adapter_inside_the_model_is_refused(adapter):
    with pytest.raises(ValueError, match="get_peft_model"):
        load_backbone(AutoModel.from_pretrained(adapter))


def test_another_model_is_refused_and_the_known_ones_named():
    bert = BertModel(BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8))
    with pytest.raises(ValueError, match=r"BertModel.*get_image_features\(\).*CLIP, SigLIP"):
        load_backbone(bert)
    with pytest.raises(ValueError, match="Linear.*get_text_features"):
        load_backbone(nn.Linear(1, 1))


def test_a_wrapped_model_is_refused(clip):
    with pytest.raises(ValueError, match="DataParallel.*accelerate launch"):
        load_backbone(nn.DataParallel(load_backbone(clip)))


# Forward


@torch.no_grad()
def test_embeddings_equal_the_plain_models_on_the_processors_own_pixels(model_folder, pairs):
    processor, plain = AutoProcessor.from_pretrained(model_folder), AutoModel.from_pretrained(model_folder).eval()
    rows = pairs.select(range(6))
    # SigLIP 2 is lower-cased by hfcomp, its tokenizer keeps the case; these captions have none
    inputs = processor(
        images=list(rows["image"]),
        text=list(rows["caption"]),
        padding="max_length",
        max_length=tiny.TEXT_LENGTH,
        return_tensors="pt",
    )
    expected = plain(input_ids=inputs["input_ids"], pixel_values=inputs["pixel_values"])
    required = (
        "image_embeds",
        "text_embeds",
        "logit_scale",
        *(("logit_bias",) if hasattr(plain, "logit_bias") else ()),
    )
    actual = encoder(model_folder, required_features=required)(
        input_ids=inputs["input_ids"], pixels=inputs["pixel_values"]
    )
    torch.testing.assert_close(actual.image_embeds, expected.image_embeds, atol=tolerances.embedding(), rtol=0)
    torch.testing.assert_close(actual.text_embeds, expected.text_embeds, atol=tolerances.embedding(), rtol=0)
    logits = actual.text_embeds @ actual.image_embeds.T * actual.logit_scale + (
        actual.logit_bias if "logit_bias" in actual else 0
    )
    torch.testing.assert_close(logits, expected.logits_per_text, atol=tolerances.loss(), rtol=0)
    assert actual.logit_scale.shape == ()


@torch.no_grad()
def test_uint8_pixels_normalized_in_the_model_equal_the_processors_output(model_folder, pairs):
    processor = AutoProcessor.from_pretrained(model_folder)
    images = [tiny.image(seed, size) for seed, size in enumerate([(64, 40), (40, 64), (32, 32)])]
    pixel_values = processor.image_processor(images, return_tensors="pt")["pixel_values"]
    collator = CompositionalCollator(processor, load_backbone(model_folder).config)
    batch = collator([{"image": image, "caption": "a red cube"} for image in images])
    transform = collator.transform
    model = encoder(
        model_folder, image_mean=transform.mean, image_std=transform.std, rescale_factor=transform.rescale_factor
    )
    assert batch["pixels"].pixels.dtype == torch.uint8
    torch.testing.assert_close(
        model.normalize_pixels(batch["pixels"].pixels), pixel_values, atol=tolerances.normalized_pixels(), rtol=0
    )
    actual = model(input_ids=batch["input_ids"], pixels=batch["pixels"]).image_embeds
    expected = model(input_ids=batch["input_ids"], pixels=pixel_values).image_embeds
    torch.testing.assert_close(actual, expected, atol=tolerances.embedding(), rtol=0)


@torch.no_grad()
def test_every_field_is_that_of_its_own_rows_and_masked_ones_are_zero(clip, pairs):
    batch = batch_for(clip, pairs)
    outputs = encoder(clip, required_features=ALL_OF_CLIP)(**batch)
    assert outputs.negative_text_embeds.shape == (6, 2, 16)
    assert outputs.negative_image_embeds.shape == (6, 16)
    assert outputs.concept_embeds.shape == (12, 16)
    mask, image_mask, owner = batch["negative_text_mask"], batch["negative_image_mask"], batch["concept_image_index"]
    assert not mask.all()
    assert not image_mask.all()
    assert (owner < 0).any()
    for value, valid in (
        (outputs.negative_text_embeds, mask),
        (outputs.negative_image_embeds, image_mask),
        (outputs.concept_embeds, owner >= 0),
    ):
        assert (value[~valid] == 0).all()
        torch.testing.assert_close(value[valid].norm(dim=-1), torch.ones(int(valid.sum())))
    # each negative alone, as a caption and as an image of its own
    plain = encoder(clip, required_features=("image_embeds", "text_embeds"))
    collator = CompositionalCollator(AutoProcessor.from_pretrained(clip), plain.config)
    allowed = {"atol": tolerances.embedding(), "rtol": 0}
    for row in range(6):
        texts = pairs[row]["negative_captions"]
        for slot, text in enumerate(texts):
            if text:
                alone = collator([{"image": pairs[row]["negative_image"] or pairs[row]["image"], "caption": text}])
                features = plain(input_ids=alone["input_ids"], pixels=alone["pixels"])
                torch.testing.assert_close(outputs.negative_text_embeds[row, slot], features.text_embeds[0], **allowed)
                if image_mask[row]:
                    torch.testing.assert_close(outputs.negative_image_embeds[row], features.image_embeds[0], **allowed)
    concept = collator([{"image": tiny.image(0), "caption": pairs[1]["concepts"][1]}])
    text = plain(input_ids=concept["input_ids"], pixels=concept["pixels"]).text_embeds[0]
    torch.testing.assert_close(outputs.concept_embeds[3], text, **allowed)


@pytest.mark.parametrize(
    "required",
    [
        ("image_embeds",),
        ("text_embeds",),
        ("image_embeds", "text_embeds", "logit_scale"),
        ("text_embeds", "concept_embeds"),
    ],
)
@torch.no_grad()
def test_a_field_is_there_when_it_is_required(clip, pairs, required):
    features = encoder(clip, required_features=required)(**batch_for(clip, pairs, 3))
    assert isinstance(features, Features)
    assert set(features) == {*required, "image_id", "text_id", "negative_text_id"}  # which are of the dataset


def test_unused_negatives_are_not_encoded(clip, pairs, monkeypatch):
    model = encoder(clip, required_features=("image_embeds", "text_embeds"))
    seen = []

    def count(_, pixels):
        seen.append(len(pixels))
        return pixels[:, 0, 0]

    monkeypatch.setattr("hfcomp.modeling.encoder.encode_images", count)
    batch = batch_for(clip, pairs)
    assert len(batch["pixels"]) > 6
    model(**batch)
    assert seen == [6]


@torch.no_grad()
def test_features_made_beforehand_pass_through_when_they_are_used(clip, pairs):
    batch = batch_for(clip, pairs)
    given = {"reference_text_embeds": torch.randn(6, 16), "reference_negative_text_embeds": torch.randn(6, 2, 16)}
    features = encoder(clip, required_features=("text_embeds", *given))(**batch, **given)
    passed_on = {"text_embeds", "image_id", "text_id", "negative_text_id"}
    assert set(features) == {*passed_on, *given}
    assert all(torch.equal(features[name], value) for name, value in given.items())
    assert set(encoder(clip, required_features=("text_embeds",))(**batch, **given)) == passed_on


def test_an_unknown_feature_is_refused(clip):
    with pytest.raises(ValueError, match=r"required_features .*\['patches'\].*negative_text"):
        encoder(clip, required_features=("image_embeds", "patches"))


@torch.no_grad()
def test_half_precision_weights_leave_as_normalized_fp32(clip, pairs):
    model = DualEncoder(load_backbone(clip, dtype=torch.bfloat16)).eval()
    features = model(**batch_for(clip, pairs, 3))
    assert features.image_embeds.dtype == features.text_embeds.dtype == torch.float32
    torch.testing.assert_close(features.image_embeds.norm(dim=-1), torch.ones(3))


# Unused parameters


def test_softmax_on_siglip_freezes_the_bias_and_nothing_else(siglip):
    model = encoder(siglip, required_features=("image_embeds", "text_embeds", "logit_scale")).train()
    assert model.freeze_unused() == ["backbone.logit_bias"]
    assert model.training
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["backbone.logit_bias"]


def test_nothing_is_frozen_when_everything_is_used(model_folder):
    bias = () if "siglip" not in model_folder.name else ("logit_bias",)
    required = (
        "image_embeds",
        "text_embeds",
        "logit_scale",
        "negative_text_embeds",
        "negative_image_embeds",
        "concept_embeds",
        "concept_image_index",
        "learned",
        *bias,
    )
    model = encoder(model_folder, {"value": Value()}, required_features=required, mini_batch_size=2)
    assert model.freeze_unused() == []
    assert model.mini_batch_size == 2


def test_an_unused_tower_and_an_unused_learned_parameter_are_frozen(clip):
    frozen = encoder(clip, {"value": Value()}, required_features=("text_embeds",)).freeze_unused()
    assert "objective_state.value.a" in frozen
    assert "backbone.logit_scale" in frozen
    assert "backbone.visual_projection.weight" in frozen
    assert not [name for name in frozen if "text" in name]


def test_parameters_frozen_before_are_not_named(clip):
    model = encoder(clip, required_features=("image_embeds", "text_embeds"))
    model.backbone.logit_scale.requires_grad_(False)
    assert model.freeze_unused() == []


# What the Trainer looks for


def test_the_trainers_edits_of_the_configuration_are_not_saved(clip, tmp_path):
    model = encoder(clip)
    model.config.text_config.eos_token_id = 77
    model.config.use_cache = False
    model.save_pretrained(tmp_path / "ours")
    AutoModel.from_pretrained(clip).save_pretrained(tmp_path / "plain")
    ours, plain = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("ours", "plain"))
    assert ours == plain


def test_activation_checkpointing_reaches_the_backbone(clip, pairs):
    model = encoder(clip, required_features=("image_embeds", "text_embeds")).train()
    assert not model.is_activation_checkpointing
    plain = gradients(model, batch_for(clip, pairs))
    getattr(model, f"{CHECKPOINTING}_enable")(**{f"{CHECKPOINTING}_kwargs": {"use_reentrant": False}})
    assert model.is_activation_checkpointing
    actual = gradients(model, batch_for(clip, pairs))
    assert_same_gradients(actual, plain)


def test_activation_checkpointing_gives_an_adapter_its_gradients(adapter, pairs, clip):
    model = encoder(adapter, required_features=("image_embeds", "text_embeds")).train()
    plain = gradients(model, batch_for(clip, pairs))
    getattr(model, f"{CHECKPOINTING}_enable")()
    actual = gradients(model, batch_for(clip, pairs))
    assert actual
    for name, gradient in actual.items():
        assert gradient.abs().sum() > 0, name
    assert_same_gradients(actual, plain)


def gradients(model, batch) -> dict[str, torch.Tensor]:
    model.zero_grad()
    features = model(**batch)
    (features.image_embeds @ features.text_embeds.T).square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_peft_is_recognized_and_the_plain_model_found(clip, adapter):
    plain, wrapped = encoder(clip), encoder(adapter)
    assert not plain.is_peft
    assert plain.plain is plain.backbone
    assert wrapped.is_peft
    assert type(wrapped.plain) is CLIPModel
    assert wrapped.config.model_type == "clip"
    scale = encoder(adapter, required_features=("logit_scale",))(input_ids=torch.tensor([[0, 1]])).logit_scale
    torch.testing.assert_close(scale, wrapped.plain.logit_scale.exp())


# Saving and loading


def test_weights_and_objective_state_come_back(model_folder, tmp_path):
    model = encoder(model_folder, {"value": Value(0.75)})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.01)
    model.save_pretrained(tmp_path)
    assert set(load_file(tmp_path / "model.safetensors")) == set(load_file(model_folder / "model.safetensors"))
    other = encoder(model_folder, {"value": Value(0.0)})
    other.load_pretrained(tmp_path)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name


def test_without_objective_state_no_file_is_written(clip, tmp_path):
    encoder(clip).save_pretrained(tmp_path)
    assert not (tmp_path / OBJECTIVE_STATE_FILE).exists()


def test_shards_are_read(clip, tmp_path):
    model = encoder(clip)
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    other = encoder(clip)
    nn.init.zeros_(other.backbone.visual_projection.weight)
    other.load_pretrained(tmp_path)
    assert torch.equal(other.backbone.visual_projection.weight, model.backbone.visual_projection.weight)


def test_an_adapter_and_an_unfrozen_scale_come_back(adapter, tmp_path):
    model = encoder(adapter)
    model.plain.logit_scale.requires_grad_(True)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.125)
    model.save_pretrained(tmp_path)
    assert list(load_file(tmp_path / OBJECTIVE_STATE_FILE)) == ["backbone.base_model.model.logit_scale"]
    other = encoder(adapter)
    other.plain.logit_scale.requires_grad_(True)
    other.load_pretrained(tmp_path)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name


def test_an_adapter_of_another_name_comes_back(clip, tmp_path):
    def build():
        backbone = get_peft_model(AutoModel.from_pretrained(clip), LoraConfig(**LORA), adapter_name="mine")
        return DualEncoder(backbone)

    model = build()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.5)
    model.save_pretrained(tmp_path)
    other = build()
    other.load_pretrained(tmp_path)
    assert all((p == 0.5).all() for name, p in other.named_parameters() if "lora_B" in name)


def change_weights(path, *, without=(), extra=()):
    state = {name: value for name, value in load_file(path).items() if name not in without}
    save_file(state | {name: torch.zeros(1) for name in extra}, path, metadata={"format": "pt"})


def test_a_checkpoint_that_does_not_fit_names_the_keys(clip, tmp_path):
    model = encoder(clip, {"value": Value()})
    model.save_pretrained(tmp_path)
    change_weights(tmp_path / "model.safetensors", without=["text_projection.weight"], extra=["stray"])
    with pytest.raises(ValueError, match=r"lack \['text_projection.weight'\] .*unexpected \['stray'\]"):
        model.load_pretrained(tmp_path)


def test_objective_state_that_does_not_fit_names_the_keys(clip, tmp_path):
    model = encoder(clip, {"value": Value()})
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"found \['objective_state.value.a'\], .*\[\]"):
        encoder(clip).load_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"expects \['objective_state.other.a'\]"):
        encoder(clip, {"other": Value()}).load_pretrained(tmp_path)
    (tmp_path / OBJECTIVE_STATE_FILE).unlink()
    with pytest.raises(ValueError, match=r"found \[\], .*\['objective_state.value.a'\]"):
        model.load_pretrained(tmp_path)


@pytest.mark.parametrize("change", [{"extra": ["stray"]}, {"without": None}])
def test_an_adapter_that_does_not_fit_names_the_keys(adapter, tmp_path, change):
    folder = shutil.copytree(adapter, tmp_path / "adapter")
    path = folder / "adapter_model.safetensors"
    name = min(load_file(path))
    change_weights(path, **{key: [name] if value is None else value for key, value in change.items()})
    with pytest.raises(ValueError, match="stray" if "extra" in change else "lora_A"):
        encoder(adapter).load_pretrained(folder)


def test_a_folder_without_weights_is_named(clip, tmp_path):
    with pytest.raises(ValueError, match=r"no model\.safetensors"):
        encoder(clip).load_pretrained(tmp_path)


def test_the_normalization_is_no_part_of_the_state(clip):
    assert not [name for name in encoder(clip).state_dict() if "pixel" in name]
    assert np.isclose(encoder(clip).pixel_mean[0, 0].item(), 127.5)
