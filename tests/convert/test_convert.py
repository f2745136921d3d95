"""Converted checkpoints embed as an independent network does, and nothing about them is guessed."""

from __future__ import annotations

import json
from argparse import Namespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoProcessor, CLIPModel

from hfcomp.convert import ConversionOptions, convert_checkpoint, export_open_clip
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.modeling import encode_images, encode_texts, load_backbone
from tests import tolerances
from tests.convert import reference, worlds
from tests.convert.worlds import SHAPES, Shape
from tests.tiny import captions

# 64 wide heads, as all towers without a configuration have
PLAIN = Shape(head_width=64, text_heads=1)


@pytest.fixture(scope="module")
def words(old_clip):
    return worlds.vocabulary(old_clip)


def assert_same_embeddings(folder, network, shape, processor):
    backbone = load_backbone(folder)
    images, ids = worlds.pixels(shape.size), worlds.tokens(processor)
    atol = worlds.tolerance(shape)
    with torch.no_grad():
        torch.testing.assert_close(encode_images(backbone, images), network.images(images), rtol=0, atol=atol)
        torch.testing.assert_close(encode_texts(backbone, ids), network.texts(ids), rtol=0, atol=atol)
    return backbone


def test_the_tokenizer_beside_the_checkpoint_is_used(tmp_path, old_clip, words):
    network = worlds.model(PLAIN, words)
    source = worlds.write_folder(tmp_path / "source", network, worlds.config(PLAIN, words, quick_gelu=True))
    tokenizer = AutoProcessor.from_pretrained(old_clip).tokenizer
    tokenizer.save_pretrained(source)
    convert_checkpoint(source, tmp_path / "clip")
    saved_tokenizer = AutoProcessor.from_pretrained(tmp_path / "clip").tokenizer
    assert saved_tokenizer.get_vocab() == tokenizer.get_vocab()
    assert not (tmp_path / "clip/modules.json").exists()


@pytest.mark.parametrize("quick_gelu", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_an_open_clip_folder_embeds_as_an_independent_network(tmp_path, old_clip, words, name, quick_gelu):
    shape, act = SHAPES[name], "quick_gelu" if quick_gelu else "gelu"
    network = worlds.model(shape, words, act=act)
    source = worlds.write_folder(tmp_path / "source", network, worlds.config(shape, words, quick_gelu=quick_gelu))
    record = convert_checkpoint(source, tmp_path / "clip", ConversionOptions(processor=str(old_clip)))
    model = assert_same_embeddings(tmp_path / "clip", network, shape, old_clip)
    assert type(model) is CLIPModel and model.logit_scale.item() == network.logit_scale.item()
    towers = model.config.vision_config, model.config.text_config
    assert [tower.hidden_act for tower in towers] == [act, act] == list(record["activation"].values())[:2]
    assert record["activation"]["source"] == f"open_clip_config.json (quick_gelu: {str(quick_gelu).lower()})"
    assert record["unused"] == [] and record["attention_heads"]["image"] == shape.width // shape.head_width


def test_the_other_activation_would_embed_differently(tmp_path, old_clip, words):
    network = worlds.model(PLAIN, words, act="quick_gelu")
    source = worlds.write_folder(tmp_path / "source", network, worlds.config(PLAIN, words, quick_gelu=False))
    options = ConversionOptions(processor=str(old_clip))
    convert_checkpoint(source, tmp_path / "gelu", options)  # what the file says, though it was trained otherwise
    with pytest.raises(AssertionError):
        assert_same_embeddings(tmp_path / "gelu", network, PLAIN, old_clip)
    options = ConversionOptions(processor=str(old_clip), activation="quick_gelu")
    record = convert_checkpoint(source, tmp_path / "quick", options)
    assert_same_embeddings(tmp_path / "quick", network, PLAIN, old_clip)
    assert record["activation"]["source"] == "--activation"


def test_towers_may_differ_in_activation_and_epsilon(tmp_path, old_clip, words):
    network = worlds.model(PLAIN, words, act="gelu", text_act="gelu_pytorch_tanh", custom_text=True, eps=1e-6)
    changes = {
        "custom_text": True,
        "text_cfg__act_kwargs": {"approximate": "tanh"},
        "text_cfg__norm_kwargs": {"eps": 1e-6},
        "vision_cfg__norm_kwargs": {"eps": 1e-6},
    }
    settings = worlds.config(PLAIN, words, quick_gelu=False, **changes)
    source = worlds.write_folder(tmp_path / "source", network, settings)
    assert all(name.startswith(("visual.", "text.", "logit")) for name in worlds.state(network))
    convert_checkpoint(source, tmp_path / "clip", ConversionOptions(processor=str(old_clip)))
    model = assert_same_embeddings(tmp_path / "clip", network, PLAIN, old_clip)
    assert model.config.text_config.layer_norm_eps == 1e-6


@pytest.mark.parametrize("layout", ["negclip", "tripletclip", "ema", "student", "plain", "openai"])
def test_files_of_methods(tmp_path, old_clip, words, layout):
    network = worlds.model(PLAIN, words)
    weights, other = worlds.state(network), worlds.state(worlds.model(PLAIN, words, seed=1))
    wrapped = {f"module.{name}": value for name, value in weights.items()}
    optimizer = {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 1e-6}]}
    numbers = {"input_resolution": 64, "context_length": 24, "vocab_size": words}
    mask = {"attn_mask": torch.zeros(24, 24)}  # a buffer that old versions of open_clip saved
    content = {
        "negclip": {"epoch": 5, "name": "neg", "state_dict": {**wrapped, "module.attn_mask": mask["attn_mask"]}},
        "tripletclip": {"model_state_dict": weights, "optimizer_state_dict": optimizer, "epoch": 1},
        "ema": {"state_dict": other, "state_dict_ema": weights},
        "student": {**{f"student.{k}": v for k, v in weights.items()}, **{f"old.{k}": v for k, v in other.items()}},
        "plain": {**weights, "logit_bias": torch.tensor(-10.0), **{f"teacher.{k}": v for k, v in other.items()}},
        "openai": {**weights, **{name: torch.tensor(value) for name, value in numbers.items()}},
    }[layout]
    file = tmp_path / f"{layout}.pth"
    torch.save(content, file)
    more = {"ema": {"state": "state_dict_ema"}, "student": {"prefix": "student"}}.get(layout, {})
    tag = {} if layout == "openai" else {"pretrained": "openai"}
    options = ConversionOptions(processor=str(old_clip), head_width=64, **more, **tag)
    record = convert_checkpoint(file, tmp_path / "clip", options)
    model = assert_same_embeddings(tmp_path / "clip", network, PLAIN, old_clip)
    assert model.config.text_config.hidden_act == model.config.vision_config.hidden_act == "quick_gelu"
    unused = record["unused"]
    expected = {
        "negclip": ["epoch", "name"],
        "tripletclip": ["epoch", "optimizer_state_dict"],
        "ema": ["state_dict"],
        "student": sorted(f"old.{name}" for name in other),
        "plain": sorted(["logit_bias", *(f"teacher.{name}" for name in other)]),
        "openai": sorted(numbers),
    }[layout]
    assert unused == expected
    assert record["prefix"] == {"negclip": "module.", "student": "student."}.get(layout, "")


def test_the_two_tables_of_long_clip_become_one(tmp_path, old_clip, words):
    network = worlds.model(PLAIN, words)
    weights = worlds.state(network)
    table = weights["positional_embedding"]
    noise = torch.randn(table.shape, generator=torch.Generator().manual_seed(1))
    begins = (torch.arange(len(table)) < 20)[:, None]
    tables = {
        "positional_embedding": torch.where(begins, table, noise),
        "positional_embedding_res": torch.where(begins, noise, table),
    }
    record = convert(tmp_path, {**weights, **tables}, pretrained="openai", processor=str(old_clip))
    model = assert_same_embeddings(tmp_path / "clip", network, PLAIN, old_clip)
    tokenizer = AutoProcessor.from_pretrained(tmp_path / "clip").tokenizer
    assert model.config.text_config.max_position_embeddings == tokenizer.model_max_length == len(table)
    assert record["unused"] == [] and "Long-CLIP" in record["layout"]


def test_several_models_in_a_file_are_named(tmp_path, words):
    network = worlds.state(worlds.model(PLAIN, words))
    for name, content, said in (
        ("c", {0: network, 1: network}, "0, 1. Choose one, such as --state 0"),
        ("a", {"state_dict": network, "state_dict_ema": network}, "state_dict, state_dict_ema.*--state"),
        (
            "b",
            {f"{side}.{k}": v for k, v in network.items() for side in ("student", "teacher")},
            "--prefix 'student.'",
        ),
    ):
        torch.save(content, tmp_path / f"{name}.pt")
        with pytest.raises(ValueError, match="several models.*" + said):
            convert_checkpoint(tmp_path / f"{name}.pt", tmp_path / "clip")
    with pytest.raises(ValueError, match="'state_dict_emma'.*'state_dict_ema'"):
        convert_checkpoint(tmp_path / "a.pt", tmp_path / "clip", ConversionOptions(state="state_dict_emma"))


def convert(tmp_path, content, **options):
    torch.save(content, tmp_path / "a.pt")
    return convert_checkpoint(tmp_path / "a.pt", tmp_path / "clip", ConversionOptions(**{"head_width": 64, **options}))


def test_the_activation_is_asked_for(tmp_path, old_clip, words):
    weights = worlds.state(worlds.model(PLAIN, words))
    for given in ({}, {"model": "ViT-B-32"}):
        with pytest.raises(ValueError, match="--pretrained openai.*--activation"):
            convert(tmp_path, weights, processor=str(old_clip), **given)
    with pytest.raises(ValueError, match="--pretrained my_run: "):
        convert(tmp_path, weights, processor=str(old_clip), pretrained="my_run")
    with pytest.raises(ValueError, match="quick_gelu .*--model ViT-B-32-quickgelu, gelu .*--pretrained laion2b_e16"):
        convert(tmp_path, weights, model="ViT-B-32-quickgelu", pretrained="laion2b_e16", processor=str(old_clip))
    assert not (tmp_path / "clip").exists()


@pytest.mark.parametrize(
    ("tag", "act"),
    [
        ("openai", "quick_gelu"),
        ("metaclip_fullcc", "quick_gelu"),
        ("dfn2b", "quick_gelu"),
        ("dfn2b_s39b", "gelu"),
        ("laion2b_s34b_b79k", "gelu"),
        ("datacomp_xl_s13b_b90k", "gelu"),
        ("laion400m_e32", "quick_gelu"),  # of patches of 32 pixels, and of no others
    ],
)
def test_tags_say_the_activation(tmp_path, old_clip, words, tag, act):
    record = convert(tmp_path, worlds.state(worlds.model(PLAIN, words)), pretrained=tag, processor=str(old_clip))
    assert record["activation"] == {"image": act, "text": act, "source": f"--pretrained {tag}"}


def test_laion400m_has_gelu_with_small_patches(tmp_path, old_clip, words):
    weights = worlds.state(worlds.model(Shape(patch=16, head_width=64, text_heads=1), words))
    record = convert(tmp_path, weights, pretrained="laion400m_e32", processor=str(old_clip))
    assert record["activation"]["image"] == "gelu"


def change_weights(weights, **changes):
    tensors = dict(weights)
    for name, value in changes.items():
        name = name.replace("__", ".")
        if value is None:
            del tensors[name]
        else:
            tensors[name] = value
    return tensors


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"visual__proj": None}, r"lack \['visual.proj'\]"),
        ({"visual__transformer__resblocks__1__ln_1__bias": None}, "lack.*resblocks.1.ln_1.bias"),
        ({"visual__layer1__0__conv1__weight": torch.ones(1)}, "is a ResNet CLIP"),
        ({"text_decoder__text_projection": torch.ones(1)}, "is a CoCa"),
        ({"visual__transformer__resblocks__0__ls_1__gamma": torch.ones(1)}, "layer scales"),
        ({"transformer__resblocks__0__attn__q_proj__lora_A": torch.ones(1)}, "LoRA.*[Mm]erge"),
        (
            {"positional_embedding_res": torch.ones(1)},
            r"embedding_res: found shape \[1\], expected \[24, 64\]",
        ),
        ({"visual__ln_pre__weight": None}, "CLIPA"),
        ({"visual__adapter__weight": torch.ones(1)}, r"unexpected \['visual.adapter.weight'\]"),
        ({"visual__positional_embedding": torch.ones(7, 64)}, "positions for 6 patches.*square"),
        ({"ln_final__bias": torch.ones(3)}, r"shape in \['text_model.final_layer_norm.bias \[3\]"),
    ],
)
def test_other_networks_are_refused_by_name(tmp_path, old_clip, words, changes, said):
    weights = change_weights(worlds.state(worlds.model(PLAIN, words)), **changes)
    with pytest.raises(ValueError, match=said):
        convert(tmp_path, weights, pretrained="openai", processor=str(old_clip))
    assert not (tmp_path / "clip").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vision_cfg__pool_type": "avg"}, "vision_cfg.pool_type='avg'"),
        ({"text_cfg__no_causal_mask": True}, "text_cfg.no_causal_mask=True"),
        ({"text_cfg__pool_type": "eos", "text_cfg__eos_id": 2}, "text_cfg.eos_id=2"),
        ({"text_cfg__hf_model_name": "roberta-base"}, "text_cfg.hf_model_name='roberta-base'"),
        ({"multimodal_cfg": {}}, "multimodal_cfg: not a known setting"),
        ({"vision_cfg__image_size": 224}, "4 patches of 32 pixels.* 224"),
        ({"text_cfg__hf_tokenizer_name": "bert-base-uncased"}, "hf_tokenizer_name='bert-base-uncased'.*--processor"),
    ],
)
def test_settings_of_other_networks_are_refused(tmp_path, words, changes, said):
    network = worlds.model(PLAIN, words)
    source = worlds.write_folder(tmp_path / "source", network, worlds.config(PLAIN, words, **changes))
    with pytest.raises(ValueError, match=said):
        convert_checkpoint(source, tmp_path / "clip")


def test_files_that_cannot_be_read_safely_say_what_to_do(tmp_path):
    file = tmp_path / "a.pt"
    torch.save({"state_dict": {}, "args": Namespace(lr=1)}, file)
    with pytest.raises(ValueError, match=r"a\.pt .*argparse\.Namespace"):
        convert_checkpoint(file, tmp_path / "clip")
    torch.save({"state_dict": {}, "rows": np.ones(1)}, file)
    with pytest.raises(ValueError, match=r"multiarray\._reconstruct"):
        convert_checkpoint(file, tmp_path / "clip")
    torch.jit.script(torch.nn.Linear(2, 2)).save(str(file))
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="TorchScript.*openai/clip-vit-base-patch32"):
        convert_checkpoint(file, tmp_path / "clip")
    torch.save({"a": torch.ones(1000)}, file)
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not a checkpoint", b"\x80\x02h\x09."):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.pt.*damaged"):
            convert_checkpoint(file, tmp_path / "clip")


def test_what_is_no_checkpoint_is_named(tmp_path, clip, words):
    with pytest.raises(ValueError, match=r"config\.json: .*\.safetensors, \.pt, .*\.ckpt\.$"):
        convert_checkpoint(clip / "config.json", tmp_path / "clip")
    with pytest.raises(ValueError, match="no such file"):
        convert_checkpoint(tmp_path / "a.pt", tmp_path / "clip")
    with pytest.raises(ValueError, match="transformers weights.*--to open_clip"):
        convert_checkpoint(clip, tmp_path / "clip")
    torch.save({"fc.weight": torch.ones(1)}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"visual\.conv1\.weight is missing.*fc\.weight"):
        convert_checkpoint(tmp_path / "a.pt", tmp_path / "clip")
    torch.save({"state_dict": {"visual.trunk.stem.0.weight": torch.ones(1)}}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="tower .*from timm"):
        convert_checkpoint(tmp_path / "a.pt", tmp_path / "clip")
    torch.save([1], tmp_path / "a.pt")
    with pytest.raises(ValueError, match="found a list"):
        convert_checkpoint(tmp_path / "a.pt", tmp_path / "clip")
    torch.save({}, tmp_path / "b.pt")
    with pytest.raises(ValueError, match=r"a\.pt, b\.pt"):
        convert_checkpoint(tmp_path, tmp_path / "clip")


def test_a_folder_of_other_files_is_left_alone(tmp_path, old_clip, words):
    weights = worlds.state(worlds.model(PLAIN, words))
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"clip .*other files \(thesis\.txt\).* --output\."):
        convert(tmp_path, weights, pretrained="openai", processor=str(old_clip))
    (tmp_path / "clip" / "thesis.txt").unlink()
    for tag in ("openai", "laion2b_e16"):
        convert(tmp_path, weights, pretrained=tag, processor=str(old_clip))
    assert json.loads((tmp_path / "clip" / "config.json").read_text())["text_config"]["hidden_act"] == "gelu"


def test_the_tokenizer_has_the_model_s_tokens(tmp_path, clip, old_clip, words):
    weights = worlds.state(worlds.model(PLAIN, words))
    with pytest.raises(ValueError, match="tokenizer .*token 1,.*highest"):
        convert(tmp_path, weights, pretrained="openai", processor=str(clip))
    fewer = change_weights(weights, token_embedding__weight=torch.ones(words - 1, 64))
    with pytest.raises(ValueError, match=f"{words:,} tokens.* {words - 1:,}"):
        convert(tmp_path, fewer, pretrained="openai", processor=str(old_clip))
    with pytest.raises(ValueError, match="missing: no such"):
        convert(tmp_path, weights, pretrained="openai", processor=str(tmp_path / "missing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty: .*Pass --processor"):
        convert(tmp_path, weights, pretrained="openai", processor=str(tmp_path / "empty"))


def test_the_end_of_text_is_the_tokenizer_s_and_further_tokens_do_not_move_it(tmp_path, old_clip, words):
    convert(tmp_path, worlds.state(worlds.model(PLAIN, words)), pretrained="openai", processor=str(old_clip))
    text = AutoModel.from_pretrained(tmp_path / "clip").config.text_config
    assert text.eos_token_id == words - 1 and text.bos_token_id == words - 2
    assert AutoProcessor.from_pretrained(tmp_path / "clip").tokenizer.model_max_length == worlds.LENGTH


def test_types_of_weights_are_kept(tmp_path, old_clip, words):
    weights = worlds.state(worlds.model(PLAIN, words))
    half = {name: value.half() for name, value in weights.items()}
    record = convert(tmp_path, half, pretrained="openai", processor=str(old_clip))
    assert record["dtype"] == "float16" and AutoModel.from_pretrained(tmp_path / "clip").dtype == torch.float16
    mixed = {**half, "logit_scale": weights["logit_scale"]}
    assert convert(tmp_path, mixed, pretrained="openai", processor=str(old_clip))["dtype"] == "float32"
    projection = load_file(tmp_path / "clip" / "model.safetensors")["visual_projection.weight"]
    assert torch.equal(projection, half["visual.proj"].T.float())


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({}, (None, "bicubic")),
        (
            {"interpolation": "bilinear", "resize_mode": "squash", "mean": 0.5, "std": [0.5, 0.25, 0.5]},
            ("squash", "bilinear"),
        ),
    ],
)
def test_images_are_prepared_as_open_clip_prepares_them(tmp_path, old_clip, words, given, steps):
    network, settings = worlds.model(PLAIN, words), worlds.config(PLAIN, words)
    settings["preprocess_cfg"] |= given
    source = worlds.write_folder(tmp_path / "source", network, settings)
    record = convert_checkpoint(source, tmp_path / "clip", ConversionOptions(processor=str(old_clip)))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 130, 3), dtype=np.uint8))
    mean, std = (np.broadcast_to(settings["preprocess_cfg"][name], 3) for name in ("mean", "std"))
    filters = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
    if steps[0] == "squash":
        prepared = image.resize((64, 64), filters[steps[1]])
    else:  # the shorter side, then the center
        prepared = image.resize((int(64 * 130 / 90), 64), filters[steps[1]])
        left = round((prepared.width - 64) / 2)
        prepared = prepared.crop((left, 0, left + 64, 64))
    expected = (np.asarray(prepared, np.float32) / 255 - mean) / std
    processor = AutoProcessor.from_pretrained(tmp_path / "clip", backend="pil")
    pixels = processor(images=image, return_tensors="pt")["pixel_values"][0]
    # a pixel, less a mean and over a standard deviation: three roundings of numbers up to 4
    assert np.abs(pixels.numpy() - expected.transpose(2, 0, 1)).max() < 3 * 4 * 2**-24 * 4
    assert record["preprocessing"]["size"] == 64 and record["preprocessing"]["source"] == "open_clip_config.json"


def test_hfcomp_evaluates_a_converted_model_with_the_embeddings_of_the_original(tmp_path, old_clip, words):
    network = worlds.model(PLAIN, words)
    source = worlds.write_folder(tmp_path / "source", network, worlds.config(PLAIN, words))
    convert_checkpoint(source, tmp_path / "clip", ConversionOptions(processor=str(old_clip)))
    images = [Image.fromarray(np.random.default_rng(at).integers(0, 256, (64, 64, 3), np.uint8)) for at in range(3)]
    settings = worlds.config(PLAIN, words)["preprocess_cfg"]
    mean, std = (np.asarray(settings[name], np.float32) for name in ("mean", "std"))
    pixels = torch.from_numpy(np.stack([(np.asarray(image, np.float32) / 255 - mean) / std for image in images]))
    tokenizer = AutoProcessor.from_pretrained(old_clip).tokenizer
    texts = captions()[:30:4]
    ids = torch.tensor([row + [0] * (worlds.LENGTH - len(row)) for row in tokenizer(texts)["input_ids"]])
    embedder = Embedder(tmp_path / "clip", device="cpu", cache=EmbeddingCache())
    with torch.no_grad():
        expected = network.images(pixels.permute(0, 3, 1, 2)), network.texts(ids)
    # pixels are off by three roundings of numbers up to 4, which the network hands on about as they are
    atol = worlds.tolerance(PLAIN) + 12 * tolerances.unit_roundoff()
    np.testing.assert_allclose(embedder.images(images), expected[0], rtol=0, atol=atol)
    np.testing.assert_allclose(embedder.texts(texts).vectors, expected[1], rtol=0, atol=atol)


def test_longest_side_is_refused(tmp_path, words):
    settings = worlds.config(PLAIN, words)
    settings["preprocess_cfg"]["resize_mode"] = "longest"
    source = worlds.write_folder(tmp_path / "source", worlds.model(PLAIN, words), settings)
    with pytest.raises(ValueError, match="'longest'"):
        convert_checkpoint(source, tmp_path / "clip", ConversionOptions())


def test_a_width_of_unknown_heads_is_asked_for(tmp_path, old_clip, words):
    weights = worlds.state(worlds.model(Shape(width=72, head_width=24, text_heads=1), words))
    with pytest.raises(ValueError, match="width 72.*--head_width"):
        convert(tmp_path, weights, pretrained="openai", processor=str(old_clip), head_width=None)
    assert convert(tmp_path, weights, pretrained="openai", head_width=24, processor=str(old_clip))[
        "attention_heads"
    ] == {
        "image": 3,
        "text": 1,
    }


@pytest.mark.parametrize("name", SHAPES)
def test_the_way_there_and_back_keeps_every_bit(tmp_path, old_clip, words, name):
    shape = SHAPES[name]
    network = worlds.model(shape, words, act="gelu")
    settings = worlds.config(shape, words, quick_gelu=False)
    source = worlds.write_folder(tmp_path / "source", network, settings)
    convert_checkpoint(source, tmp_path / "clip", ConversionOptions(processor=str(old_clip)))
    record = export_open_clip(tmp_path / "clip", tmp_path / "back")
    before, after = (load_file(tmp_path / part / "open_clip_model.safetensors") for part in ("source", "back"))
    assert {name: value.shape for name, value in after.items()} == {name: v.shape for name, v in before.items()}
    assert all(torch.equal(after[name], before[name]) for name in before)
    config = json.loads((tmp_path / "back" / "open_clip_config.json").read_text())
    config["preprocess_cfg"].pop("interpolation"), config["preprocess_cfg"].pop("resize_mode")
    ratio = config["model_cfg"]["vision_cfg"].pop("mlp_ratio", 4.0)
    settings["model_cfg"]["vision_cfg"].pop("mlp_ratio")
    if shape.head_width == 64:
        settings["model_cfg"]["vision_cfg"].pop("head_width")
    assert config == settings and int(shape.width * ratio) == shape.inner
    assert record["activation"]["image"] == "gelu" and "hf_tokenizer_name" in record["note"]
    convert_checkpoint(tmp_path / "back", tmp_path / "again", ConversionOptions(processor=str(tmp_path / "back")))
    files = [(tmp_path / part / "model.safetensors").read_bytes() for part in ("clip", "again")]
    assert files[0] == files[1]


def test_a_clip_of_the_hub_in_open_clip_s_layout_embeds_the_same(tmp_path, old_clip):
    """Its `eos_token_id` of 2 is transformers' older way to say the highest token."""
    export_open_clip(old_clip, tmp_path / "open_clip")
    settings = json.loads((tmp_path / "open_clip" / "open_clip_config.json").read_text())["model_cfg"]
    assert settings["quick_gelu"] is True
    vision, text = settings["vision_cfg"], settings["text_cfg"]
    shape = Shape(
        vision["image_size"], vision["patch_size"], vision["width"], vision["head_width"], 64, vision["layers"], 2
    )
    network = reference.OpenClip(
        reference.Vision(shape.size, shape.patch, shape.width, shape.layers, 2, 64, 16, "quick_gelu", 1e-5),
        reference.Text(text["vocab_size"], text["context_length"], 32, text["layers"], 2, 64, 16, "quick_gelu", 1e-5),
    )
    network.load_state_dict(load_file(tmp_path / "open_clip" / "open_clip_model.safetensors"))
    assert_same_embeddings(old_clip, network.eval(), shape, old_clip)


@pytest.mark.parametrize("kind", ["siglip", "metaclip2"])
def test_other_models_are_not_written_as_open_clip(request, tmp_path, kind):
    with pytest.raises(ValueError, match="only a CLIPModel"):
        export_open_clip(request.getfixturevalue(kind), tmp_path / "open_clip")


def test_a_text_that_does_not_end_at_the_highest_token_is_not_written(tmp_path, clip):
    with pytest.raises(ValueError, match="token 1 .*highest"):
        export_open_clip(clip, tmp_path / "open_clip")


def test_both_activations_at_once_are_not_written(tmp_path, old_clip):
    model = CLIPModel.from_pretrained(old_clip)
    model.config.text_config.hidden_act = "gelu"
    model.save_pretrained(tmp_path / "mixed")
    AutoProcessor.from_pretrained(old_clip).save_pretrained(tmp_path / "mixed")
    with pytest.raises(ValueError, match="quick_gelu and gelu"):
        export_open_clip(tmp_path / "mixed", tmp_path / "open_clip")


def test_safetensors_alone_are_a_checkpoint(tmp_path, old_clip, words):
    network = worlds.model(PLAIN, words)
    save_file(worlds.state(network), tmp_path / "model.safetensors")
    options = ConversionOptions(processor=str(old_clip), activation="quick_gelu", head_width=64)
    convert_checkpoint(tmp_path / "model.safetensors", tmp_path / "clip", options)
    assert_same_embeddings(tmp_path / "clip", network, PLAIN, old_clip)
