"""Image tokens and phrases of a caption against plain loops over the models' own weights. 6 seconds."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoProcessor

from hfcomp.data.collators import CompositionalCollator
from hfcomp.data.columns import COUNTED_KEYS
from hfcomp.modeling import DualEncoder, encode_image_tokens, encode_phrases, encode_texts, load_backbone
from hfcomp.modeling.backbones import load_config
from tests import tiny, tolerances
from tests.trainers.runs import assert_same_gradients

SIZE = 5
USES = ("image_embeds", "text_embeds", "tokens", "concept_embeds", "concept_image_index", "logit_scale")
SIGLIP = pytest.mark.parametrize("name", ["siglip", "siglip2"])
CLIP = pytest.mark.parametrize("name", ["clip", "metaclip2"])


@pytest.fixture
def folder(name, request):
    return request.getfixturevalue(name)


@functools.cache
def _read(folder) -> torch.nn.Module:
    return load_backbone(folder)


def load_model(folder) -> torch.nn.Module:
    """The model, a new one each time; to read it from disk takes longer than most tests."""
    return copy.deepcopy(_read(folder))


@functools.cache
def shaken(folder) -> torch.nn.Module:
    """The model with its biases and norms no longer 0 and 1."""
    model = load_model(folder).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def pixels(number: int = SIZE) -> torch.Tensor:
    side = tiny.IMAGE_SIZE
    return torch.randn(number, 3, side, side, generator=torch.Generator().manual_seed(2))


@functools.cache
def batch_for(folder, *, concept_tokens: bool = False) -> dict:
    collator = CompositionalCollator(
        AutoProcessor.from_pretrained(folder),
        load_config(folder),
        num_negatives=2,
        max_concepts=3,
        concept_tokens=concept_tokens,
    )
    batch = collator(tiny.pairs(SIZE, concepts=True, ragged=False).to_list())
    return {key: value for key, value in batch.items() if key not in COUNTED_KEYS}


# The tokens of an image


@torch.no_grad()
def test_the_pooled_image_is_what_it_is_without_tokens(model_folder):
    model = shaken(model_folder)
    image, tokens = encode_image_tokens(model, pixels())
    assert torch.equal(image, F.normalize(model.get_image_features(pixel_values=pixels()).pooler_output, dim=-1))
    patches = (tiny.IMAGE_SIZE // 16) ** 2
    assert tokens.shape == (SIZE, patches, image.shape[1])
    torch.testing.assert_close(tokens.norm(dim=-1), torch.ones(SIZE, patches))


def values_by_head(head, token: torch.Tensor) -> list[torch.Tensor]:
    attention = head.attention
    width, heads = attention.embed_dim, attention.num_heads
    weight, bias = attention.in_proj_weight[2 * width :], attention.in_proj_bias[2 * width :]
    size = width // heads
    parts = [slice(h * size, (h + 1) * size) for h in range(heads)]
    return [weight[part] @ token + bias[part] for part in parts]


def behind_attention(head, values: torch.Tensor) -> torch.Tensor:
    x = head.attention.out_proj.weight @ values + head.attention.out_proj.bias
    return x + head.mlp(head.layernorm(x))


@SIGLIP
@torch.no_grad()
def test_a_token_of_siglip_goes_the_way_of_the_values_of_the_pooling_head(folder):
    model = shaken(folder)
    head = model.vision_model.head
    states = model.vision_model(pixels()).last_hidden_state
    _, tokens = encode_image_tokens(model, pixels())
    for image in range(SIZE):
        for patch, state in enumerate(states[image]):
            expected = behind_attention(head, torch.cat(values_by_head(head, state)))
            torch.testing.assert_close(tokens[image, patch], F.normalize(expected, dim=0))


@SIGLIP
@torch.no_grad()
def test_the_values_of_the_tokens_weighted_by_the_heads_attention_are_the_pooled_image(folder):
    """That these are the values that the head pools: its own weights put them together to its own output."""
    model = shaken(folder)
    head = model.vision_model.head
    states = model.vision_model(pixels()).last_hidden_state
    probe = head.probe.repeat(SIZE, 1, 1)
    _, weights = head.attention(probe, states, states, average_attn_weights=False)
    image, _ = encode_image_tokens(model, pixels())
    for index in range(SIZE):
        tokens = [values_by_head(head, state) for state in states[index]]
        pooled = [
            sum(weights[index, h, 0, patch] * values[h] for patch, values in enumerate(tokens))
            for h in range(head.attention.num_heads)
        ]
        expected = behind_attention(head, torch.cat(pooled))
        torch.testing.assert_close(image[index], F.normalize(expected, dim=0))


@CLIP
@torch.no_grad()
def test_a_token_of_clip_goes_the_way_of_the_class_token(folder):
    model = shaken(folder)
    states = model.vision_model(pixels()).last_hidden_state
    image, tokens = encode_image_tokens(model, pixels())

    def embed(state):
        return F.normalize(model.visual_projection.weight @ model.vision_model.post_layernorm(state), dim=0)

    for index in range(SIZE):
        torch.testing.assert_close(image[index], embed(states[index, 0]))
        for patch in range(tokens.shape[1]):
            torch.testing.assert_close(tokens[index, patch], embed(states[index, 1 + patch]))


def test_the_tokens_leave_the_heads_query_and_keys_alone(siglip):
    model = load_model(siglip)
    encode_image_tokens(model, pixels())[1].square().sum().backward()
    assert model.vision_model.head.probe.grad.abs().max() == 0
    width = model.config.vision_config.hidden_size
    assert model.vision_model.head.attention.in_proj_weight.grad[: 2 * width].abs().max() == 0


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("siglip", ["vision_model.head.attention", "vision_model.head.mlp.fc1"]),
        ("clip", ["visual_projection", "text_projection"]),
    ],
)
@torch.no_grad()
def test_an_adapter_of_the_head_counts_in_the_tokens(folder, targets):
    torch.manual_seed(0)
    settings = LoraConfig(r=2, target_modules=targets, init_lora_weights=False)
    adapted = get_peft_model(load_model(folder), settings).eval()
    actual = encode_image_tokens(adapted, pixels())
    ids, mask = batch_for(folder)["input_ids"], torch.ones(SIZE, 1, 1, dtype=torch.bool)
    phrases = encode_phrases(adapted, ids, mask.expand(-1, -1, ids.shape[1]))
    plain = encode_image_tokens(load_model(folder).eval(), pixels())
    merged = adapted.merge_and_unload()
    for value, other, without in zip(actual, encode_image_tokens(merged, pixels()), plain, strict=True):
        torch.testing.assert_close(value, other, atol=tolerances.embedding(), rtol=0)
        assert (value - without).abs().max() > 1e-2
    expected = encode_phrases(merged, ids, mask.expand(-1, -1, ids.shape[1]))
    torch.testing.assert_close(phrases, expected, atol=tolerances.embedding(), rtol=0)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_half_precision_gives_unit_tokens_in_fp32(folder):
    with torch.autocast("cpu", torch.bfloat16):
        autocast = encode_image_tokens(load_model(folder), pixels())
    half = encode_image_tokens(load_model(folder).to(torch.bfloat16), pixels())
    exact = encode_image_tokens(load_model(folder), pixels())
    for outputs in (autocast, half):
        for value, other in zip(outputs, exact, strict=True):
            assert value.dtype == torch.float32
            torch.testing.assert_close(value.norm(dim=-1), torch.ones(value.shape[:-1]))
            torch.testing.assert_close(value, other, atol=0.03, rtol=0)


# The phrases of a caption


@torch.no_grad()
def test_a_phrase_is_the_mean_of_its_states_through_the_head(model_folder):
    model, batch = shaken(model_folder), batch_for(model_folder, concept_tokens=True)
    ids = batch["input_ids"]
    mask = batch["concept_token_mask"].unflatten(0, (SIZE, -1))
    text, phrases = encode_phrases(model, ids, mask)
    assert torch.equal(text, encode_texts(model, ids))
    states = model.text_model(ids).last_hidden_state
    tower = model.text_model
    head = tower.head if hasattr(tower, "head") else model.text_projection
    for index in range(SIZE):
        for slot in range(mask.shape[1]):
            places = mask[index, slot].nonzero().flatten().tolist()
            if places:
                mean = sum(states[index, place] for place in places) / len(places)
                torch.testing.assert_close(phrases[index, slot], F.normalize(head(mean), dim=0))


@torch.no_grad()
def test_the_state_that_a_text_pools_is_its_embedding(model_folder):
    """That the states are those behind the last norm: the pooled token alone, as a phrase, is the text."""
    model, ids = shaken(model_folder), batch_for(model_folder)["input_ids"]
    end = AutoProcessor.from_pretrained(model_folder).tokenizer.eos_token_id
    siglip = hasattr(model.text_model, "head")
    pooled = torch.full((SIZE,), ids.shape[1] - 1) if siglip else (ids == end).int().argmax(1)
    mask = F.one_hot(pooled, ids.shape[1]).bool().unsqueeze(1)
    text, phrases = encode_phrases(model, ids, mask)
    torch.testing.assert_close(phrases[:, 0], text)


# Through the encoder


def outputs_and_gradients(folder, batch, mini_batch_size):
    required = (*USES, "negative_text_embeds")
    model = DualEncoder(load_model(folder), required_features=required, mini_batch_size=mini_batch_size).train()
    features = model(**batch)
    joint = features.concept_embeds @ features.tokens.flatten(0, 1).T
    (
        joint.square().sum()
        + (features.image_embeds @ features.text_embeds.T).sum()
        + features.negative_text_embeds.sum()
    ).backward()
    named = model.named_parameters()
    return features, {name: p.grad for name, p in named if p.grad is not None}


@pytest.mark.parametrize("name", ["clip", "siglip"])
@pytest.mark.parametrize("concept_tokens", [False, True])
def test_mini_batches_change_nothing(folder, concept_tokens):
    batch = batch_for(folder, concept_tokens=concept_tokens)
    whole, gradients = outputs_and_gradients(folder, batch, None)
    assert (batch["concept_image_index"] < 0).any()
    assert (whole.concept_embeds[batch["concept_image_index"] < 0] == 0).all()
    # 2 divides the captions unevenly: a part holds a caption and a negative
    parts, actual = outputs_and_gradients(folder, batch, 2)
    assert set(parts) == set(whole)
    for key, value in whole.items():
        torch.testing.assert_close(parts[key], value, atol=tolerances.embedding(), rtol=0)
    assert all(value.isfinite().all() for value in gradients.values())
    assert_same_gradients(actual, gradients)


@torch.no_grad()
def test_both_sources_have_one_layout(siglip):
    outputs = {}
    for concept_tokens in (False, True):
        batch = batch_for(siglip, concept_tokens=concept_tokens)
        model = DualEncoder(
            load_model(siglip), required_features=("concept_embeds", "concept_image_index", "concept_id")
        ).eval()
        outputs[concept_tokens] = model(**batch)
        of_batch = {"concept_image_index", "concept_id", "image_id", "text_id", "negative_text_id"}
        assert set(outputs[concept_tokens]) == {"concept_embeds", *of_batch}
    assert torch.equal(outputs[True].concept_image_index, outputs[False].concept_image_index)
    assert torch.equal(outputs[True].concept_id, outputs[False].concept_id)
    assert torch.equal((outputs[True].concept_embeds == 0).all(1), (outputs[False].concept_embeds == 0).all(1))


@torch.no_grad()
def test_tokens_are_those_of_the_images_and_not_of_negative_images(clip):
    model = DualEncoder(load_model(clip), required_features=("image_embeds", "negative_image_embeds", "tokens")).eval()
    both = torch.cat([pixels(), pixels(2).flip(-1)])
    mask = torch.tensor([True, False, True, False, False])
    features = model(batch_for(clip)["input_ids"], pixels=both, negative_image_mask=mask)
    assert features.negative_image_embeds.shape == (SIZE, 16)
    torch.testing.assert_close(features.tokens, encode_image_tokens(model.backbone, pixels())[1])


def test_nothing_is_frozen_where_tokens_are_used(model_folder):
    bias = ("logit_bias",) if "siglip" in model_folder.name else ()
    assert DualEncoder(load_model(model_folder), required_features=(*USES, *bias)).freeze_unused() == []


def test_a_model_of_tokens_alone_freezes_the_texts(clip):
    frozen = DualEncoder(load_model(clip), required_features=("tokens",)).freeze_unused()
    assert frozen and not [name for name in frozen if "vision_model" in name or "visual" in name]
