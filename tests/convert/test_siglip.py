"""SigLIP of open_clip, whose image tower is timm's, embeds as an independent network does."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoTokenizer, SiglipModel

from hfcomp.convert import ConversionOptions, convert_checkpoint
from hfcomp.modeling import encode_images, encode_texts, load_backbone
from tests import tolerances
from tests.convert import reference, worlds
from tests.tiny import captions

WIDTH, INNER, SIZE, PATCH = 48, 192, 32, 16
TOWERS = {"vit_base_patch16_siglip_224": "gelu", "vit_base_patch32_siglip_256": "gelu_pytorch_tanh"}


def network(words: int, image_act: str, text_act: str):
    trunk = reference.TimmTrunk(SIZE, PATCH, WIDTH, 2, 12, INNER, image_act)
    text = reference.Text(words, worlds.LENGTH, WIDTH, 2, 4, INNER, WIDTH, text_act, 1e-6, siglip=True)
    return reference.randomize(reference.SigLip(trunk, text), 0)


def config(words: int, tower: str, **text) -> dict:
    vision = {"image_size": SIZE, "timm_model_name": tower, "timm_model_pretrained": False}
    return {
        "model_cfg": {
            "embed_dim": WIDTH,
            "init_logit_bias": -10,
            "custom_text": True,
            "vision_cfg": {**vision, "timm_pool": "map", "timm_proj": "none"},
            "text_cfg": {
                "context_length": worlds.LENGTH,
                "vocab_size": words,
                "hf_tokenizer_name": "timm/ViT-B-16-SigLIP",
                "tokenizer_kwargs": {"clean": "canonicalize"},
                **{"width": WIDTH, "heads": 4, "layers": 2, "no_causal_mask": True, "proj_bias": True},
                **{"pool_type": "last", "norm_kwargs": {"eps": 1e-6}, **text},
            },
        },
        "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"},
    }


@pytest.mark.parametrize("text_act", ["gelu", "gelu_pytorch_tanh"])
@pytest.mark.parametrize("tower", TOWERS)
def test_an_open_clip_siglip_embeds_as_an_independent_network(tmp_path, siglip, tower, text_act):
    tokenizer = AutoTokenizer.from_pretrained(siglip)
    words = len(tokenizer)
    original = network(words, TOWERS[tower], text_act)
    tanh = {"act_kwargs": {"approximate": "tanh"}} if text_act != "gelu" else {}
    source = worlds.write_folder(tmp_path / "source", original, config(words, tower, **tanh))
    record = convert_checkpoint(source, tmp_path / "siglip", ConversionOptions(processor=str(siglip)))
    backbone = load_backbone(tmp_path / "siglip")
    assert (tmp_path / "siglip/modules.json").is_file()  # by which sentence-transformers pads as it was trained
    assert type(backbone) is SiglipModel and record["unused"] == []
    assert record["activation"] == {
        "image": TOWERS[tower],
        "text": text_act,
        "source": f"open_clip_config.json ({tower})",
    }
    images = worlds.pixels(SIZE)
    ids = tokenizer(captions()[:40:9], padding="max_length", max_length=worlds.LENGTH, return_tensors="pt")[
        "input_ids"
    ]
    # heads of the two towers have 4 and 12 numbers; the image tower's pooling is a layer more, which they allow for
    sizes = {"hidden": WIDTH, "inner": INNER, "head": 12, "patch": 3 * PATCH**2, "projection": WIDTH}
    atol = tolerances.embedding(**sizes)
    with torch.no_grad():
        torch.testing.assert_close(encode_images(backbone, images), original.images(images), rtol=0, atol=atol)
        torch.testing.assert_close(encode_texts(backbone, ids), original.texts(ids), rtol=0, atol=atol)
    assert (backbone.logit_scale.item(), backbone.logit_bias.item()) == (original.logit_scale.item(), -10)


def test_the_images_are_squashed_and_the_texts_padded_to_the_end(tmp_path, siglip):
    words = len(AutoTokenizer.from_pretrained(siglip))
    source = worlds.write_folder(
        tmp_path / "source", network(words, "gelu", "gelu"), config(words, "vit_base_patch16_siglip_224")
    )
    options = ConversionOptions(processor=str(siglip), activation="gelu_pytorch_tanh")
    record = convert_checkpoint(source, tmp_path / "siglip", options)
    settings = load_backbone(tmp_path / "siglip").config
    assert settings.text_config.hidden_act == settings.vision_config.hidden_act == "gelu_pytorch_tanh"
    assert record["preprocessing"]["resize_mode"] == "squash" and record["preprocessing"]["mean"] == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("tower", "text", "said"),
    [
        ("convnext_base", {}, "timm's convnext_base"),
        ("vit_base_patch16_siglip_224", {"pool_type": "first"}, "text_cfg.pool_type='first'"),
        ("vit_base_patch16_siglip_224", {"no_causal_mask": False}, "no_causal_mask=true"),
    ],
)
def test_other_networks_are_refused(tmp_path, siglip, tower, text, said):
    settings = config(80, tower, **text)
    source = worlds.write_folder(tmp_path / "source", network(80, "gelu", "gelu"), settings)
    with pytest.raises(ValueError, match=said):
        convert_checkpoint(source, tmp_path / "siglip", ConversionOptions(processor=str(siglip)))


def test_without_a_configuration_and_without_a_tokenizer(tmp_path):
    source = worlds.write_folder(
        tmp_path / "source", network(80, "gelu", "gelu"), config(80, "vit_base_patch16_siglip_224")
    )
    with pytest.raises(ValueError, match="Google has 80 tokens.*--processor"):
        convert_checkpoint(source, tmp_path / "siglip")
    (source / "open_clip_config.json").unlink()
    with pytest.raises(ValueError, match=r"open_clip_config\.json is missing.*timm"):
        convert_checkpoint(source, tmp_path / "siglip")
