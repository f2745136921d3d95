"""Every family of dual encoders that the installed transformers has, through the embedder."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version
from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, AutoProcessor

from hfcomp import Embedder
from hfcomp.data.images import decode_image
from hfcomp.data.tokenizing import TextTokenizer, clean
from hfcomp.modeling import merge_adapter
from hfcomp.trainers import C2LIPConfig, C2LIPTrainer, InfoNCEConfig, InfoNCETrainer
from tests import families, tiny

TEXTS = ["a red cube on a blue ball", "a blue cube on a red ball", "a ring", "a red cube " * 30]
FIRST = ("flava",)  # features of all tokens, of which the first is the embedding
OVERFLOWING = ("clipseg", "groupvit", "owlv2", "owlvit")
FULL_LENGTH = ("siglip", "siglip2")  # attend to their padding
LAYER = re.compile(r"(text|vision|image)_model\..*layers?\.\d+\.")
# BLIP's cross-attention reads images into texts, which embeddings do not use.
UNUSED = re.compile("crossattention")
# What is the same for every family, by default only for these: several tensors or one per image, batch norms, tokens.
DEFAULT = ("align", "clip", "flava", "siglip2")
SOME = [pytest.param(name, marks=[] if name in DEFAULT else pytest.mark.slow) for name in families.dual_encoders()]


def images():
    rng = np.random.default_rng(0)
    sizes = ((40, 64), (64, 40), (tiny.IMAGE_SIZE, tiny.IMAGE_SIZE))
    return [families.Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)) for size in sizes]


@pytest.fixture(scope="module", params=families.dual_encoders())
def family(request, tmp_path_factory):
    return request.param, families.write_family(tmp_path_factory.mktemp("families") / request.param, request.param)


def image_inputs(model, processor, image):
    inputs = processor.image_processor([image], return_tensors="pt")
    return {**inputs, "pixel_values": inputs["pixel_values"].to(model.dtype)}


def own_features(family, model, processor, images, texts):
    """Embeds with the family's own methods and processor, as its documentation does: normalized `[B, D]` each."""
    limit = processor.tokenizer.model_max_length
    image = [model.get_image_features(**image_inputs(model, processor, x)) for x in images]
    text = []
    for words in texts:
        padding = {"padding": "max_length"} if family in FULL_LENGTH else {}
        inputs = processor.tokenizer(words, truncation=True, max_length=limit, return_tensors="pt", **padding)
        mask = {} if padding else {"attention_mask": inputs["attention_mask"]}
        text.append(model.get_text_features(input_ids=inputs["input_ids"], **mask))
    pooled = [
        [(x.pooler_output[:, 0] if family in FIRST else x.pooler_output) for x in part] for part in (image, text)
    ]
    return [torch.nn.functional.normalize(torch.cat(part), dim=-1) for part in pooled]


def load(family, folder):
    # With PyTorch's attention, AIMv2's text tower would be causal only if a text is padded.
    attention = "eager" if family == "aimv2" else None
    model = AutoModel.from_pretrained(folder, attn_implementation=attention).eval()
    return model, AutoProcessor.from_pretrained(folder)


def test_embeddings_equal_the_models_own(family):
    name, folder = family
    with torch.inference_mode():
        image, text = own_features(name, *load(name, folder), images(), TEXTS)
    embedder = Embedder(folder)
    np.testing.assert_allclose(embedder.images(images()), image, atol=2e-6)
    np.testing.assert_allclose(embedder.texts(TEXTS).vectors, text, atol=2e-6)


def make_trainer(folder, tmp_path, **settings):
    args = InfoNCEConfig(
        output_dir=str(tmp_path / "run"), per_device_train_batch_size=4, max_steps=2, report_to="none", **settings
    )
    return InfoNCETrainer(model=str(folder), args=args, train_dataset=tiny.pairs(8))


def test_a_step_equals_a_plain_one(family, tmp_path):
    name, folder = family
    if name in OVERFLOWING and Version(transformers.__version__) < Version("5.2"):
        pytest.skip("before transformers 5.2, this family's causal mask overflows in double precision")
    trainer = make_trainer(folder, tmp_path)
    rows = [trainer.train_dataset[number] for number in range(4)]
    trainer.model.double().eval()  # dropout would differ
    trainer.compute_loss(trainer.model, trainer.data_collator(rows)).backward()
    gradients = {key: x.grad for key, x in trainer.model.backbone.named_parameters() if x.grad is not None}

    model, processor = load(name, folder)
    model.double()
    pictures = [decode_image(row["image"], where="here") for row in rows]
    image, text = own_features(name, model, processor, pictures, [clean(row["caption"]) for row in rows])
    scale = 1 / model.temperature if hasattr(model, "temperature") else model.logit_scale.exp()
    cosines = scale * image @ text.T
    if hasattr(model, "logit_bias"):
        signs = 2 * torch.eye(4) - 1
        loss = -torch.nn.functional.logsigmoid(signs * (cosines + model.logit_bias)).sum() / 4
    else:
        cross_entropy, target = torch.nn.functional.cross_entropy, torch.arange(4)
        loss = (cross_entropy(cosines, target) + cross_entropy(cosines.T, target)) / 2
    loss.backward()
    expected = {key: x.grad for key, x in model.named_parameters() if x.grad is not None and x.grad.any()}
    assert set(expected) <= set(gradients)
    # The pixels are prepared in float32.
    largest = max(gradient.abs().max().item() for gradient in gradients.values())
    for key, gradient in gradients.items():
        other = expected.get(key, torch.zeros_like(gradient))
        torch.testing.assert_close(
            gradient, other, rtol=1e-4, atol=1e-5 * largest, msg=lambda x, key=key: f"{key}: {x}"
        )


@pytest.mark.parametrize("family", SOME, indirect=True)
def test_a_trained_model_is_loaded_by_its_own_class(family, tmp_path):
    name, folder = family
    trainer = make_trainer(folder, tmp_path, learning_rate=1e-3, warmup_steps=0, mini_batch_size=2)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    model = type(trainer.model.plain).from_pretrained(tmp_path / "saved")
    for key, value in trainer.model.plain.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key
    assert not np.array_equal(Embedder(tmp_path / "saved").texts(TEXTS).vectors, Embedder(folder).texts(TEXTS).vectors)


def test_an_adapter_is_on_every_layer_of_the_towers(family, tmp_path):
    name, folder = family
    trainer = make_trainer(folder, tmp_path, peft="lora", lora_rank=2)
    adapted = {key.partition(".lora_A")[0] for key, _ in trainer.model.named_parameters() if ".lora_A" in key}
    layers = {key.removeprefix("backbone.base_model.model.") for key in adapted}
    model, _ = load(name, folder)
    linear = {key for key, x in model.named_modules() if isinstance(x, torch.nn.Linear) and LAYER.search(key)}
    assert layers == linear - set(filter(UNUSED.search, linear))


@pytest.mark.parametrize("family", SOME, indirect=True)
def test_a_trained_adapter_is_merged(family, tmp_path):
    trainer = make_trainer(family[1], tmp_path, learning_rate=1e-2, warmup_steps=0, peft="lora", lora_rank=2)
    trainer.train()
    trainer.save_model(tmp_path / "adapter")
    merge_adapter(tmp_path / "adapter", tmp_path / "merged")
    both = [Embedder(tmp_path / place).texts(TEXTS).vectors for place in ("adapter", "merged")]
    np.testing.assert_allclose(*both, atol=1e-5)


@pytest.mark.parametrize("name", families.WITHOUT_EMBEDDINGS)
def test_a_family_without_comparable_features_is_named(name, tmp_path):
    folder = families.write_family(tmp_path / name, name)
    with pytest.raises(ValueError, match="text embedding.*pooler_output"):
        Embedder(folder).texts(["a"])


def test_the_page_lists_the_families():
    page = (Path(__file__).parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| ([\w-]+) \| `\w+` \| (?:yes|no)", page, flags=re.MULTILINE)
    later = [name for name in listed if name not in CONFIG_MAPPING]
    for name in later:
        page = re.sub(rf"^\| {name} \| .*\n", "", page, flags=re.MULTILINE)
    assert families.table() in page, "`python -m tests.families` prints the table"
    if later:
        pytest.skip(f"transformers {transformers.__version__} has no {', '.join(later)}; the other rows are right")


def test_token_objectives_name_the_families_that_have_tokens(tmp_path):
    folder = families.write_family(tmp_path / "flava", "flava")
    with pytest.raises(ValueError, match="FlavaModel.*clip, metaclip_2, siglip"):
        C2LIPTrainer(
            model=str(folder),
            args=C2LIPConfig(output_dir=str(tmp_path / "run"), report_to="none"),
            train_dataset=tiny.pairs(4, concepts=True),
        )


@pytest.mark.follows("hfcomp/data/collators.py", "which must prepare every image itself. Remove them.")
@pytest.mark.parametrize("setting", [{"reduced_jpeg": True}, {"pixel_cache": "pixels"}])
def test_settings_that_need_a_plain_resize_are_refused_by_name(setting, tmp_path):
    folder = families.write_family(tmp_path / "siglip2", "siglip2")
    with pytest.raises(ValueError, match="pixel_cache.*Siglip2ImageProcessor"):
        make_trainer(folder, tmp_path, **setting)
    make_trainer(folder, tmp_path)


@pytest.mark.follows("hfcomp/data/tokenizing.py", "Set tokenizer.pad_token to one that texts never contain.")
def test_a_tokenizer_must_pad_as_the_tower_expects(tmp_path):
    folder = families.write_family(tmp_path / "align", "align")
    config, processor = AutoConfig.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
    processor.tokenizer.pad_token = "[MASK]"
    with pytest.raises(ValueError, match="hides token 0 .*pads with token 4"):
        TextTokenizer.from_processor(processor, config)
    processor.tokenizer.pad_token, config.text_config.pad_token_id = None, None
    with pytest.raises(ValueError, match="no padding token"):
        TextTokenizer.from_processor(processor, config)
    processor.tokenizer.pad_token, config.text_config.pad_token_id = "[PAD]", 0
    assert TextTokenizer.from_processor(processor, config).max_length == tiny.TEXT_LENGTH
