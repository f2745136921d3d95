"""Two towers joined into a dual encoder, and trained with a frozen image tower: LiT."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import (
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    BertConfig,
    BertModel,
    RobertaConfig,
    RobertaForMaskedLM,
    VisionTextDualEncoderModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from hfcomp import Embedder, cli
from hfcomp.convert import join_towers
from tests import families, tiny

SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
VIT = ViTConfig(**SMALL, image_size=tiny.IMAGE_SIZE, patch_size=8)
TOKENIZER = "vision-text-dual-encoder"  # BERT's


@pytest.fixture(scope="module")
def towers(tmp_path_factory):
    """Returns a folder with image and text models."""
    folder, tokenizer = tmp_path_factory.mktemp("towers"), families.make_tokenizer(TOKENIZER)
    words = SMALL | {"vocab_size": len(tokenizer), "max_position_embeddings": tiny.TEXT_LENGTH, "pad_token_id": 0}
    torch.manual_seed(0)
    models = {
        "vit": ViTModel(VIT),
        "classifier": ViTForImageClassification(VIT),
        "bert": BertModel(BertConfig(**words)),
        "roberta": RobertaForMaskedLM(RobertaConfig(**words)),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
        processor = tokenizer if name in ("bert", "roberta") else families.make_image_processor("vit")
        processor.save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="module")
def joined(towers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("joined") / "lit"
    words = ["--to", "dual_encoder", "--text", str(towers / "bert"), "--output", str(folder)]
    cli.main(["convert", str(towers / "vit"), *words])
    return folder


def test_embeddings_are_the_image_models_own(joined, towers):
    model = VisionTextDualEncoderModel.from_pretrained(joined)
    words = AutoTokenizer.from_pretrained(towers / "bert").get_vocab()
    assert AutoProcessor.from_pretrained(joined).tokenizer.get_vocab() == words
    images = [tiny.image(seed, (40, 56)) for seed in range(3)]
    inputs = AutoProcessor.from_pretrained(joined).image_processor(images, return_tensors="pt")
    with torch.inference_mode():
        pooled = AutoModel.from_pretrained(towers / "vit").eval()(**inputs).pooler_output
    expected = torch.nn.functional.normalize(pooled, dim=-1)
    torch.testing.assert_close(torch.as_tensor(Embedder(joined).images(images)), expected, rtol=0, atol=2e-6)
    text = AutoModel.from_pretrained(towers / "bert").state_dict()
    assert all(torch.equal(x, text[name]) for name, x in model.text_model.state_dict().items())
    assert model.logit_scale.exp().item() == pytest.approx(10)


@pytest.mark.parametrize("image", ["clip", "siglip"])
def test_the_towers_of_dual_encoders_and_texts_without_a_pooler(image, towers, request, tmp_path):
    record = join_towers(request.getfixturevalue(image), towers / "roberta", tmp_path / "a")
    pooler = ["text_model.pooler.dense.bias", "text_model.pooler.dense.weight"]
    assert record["new"] == ["text_projection.weight", *pooler]
    join_towers(request.getfixturevalue(image), towers / "roberta", tmp_path / "b")
    join_towers(request.getfixturevalue(image), towers / "roberta", tmp_path / "c", seed=1)
    states = [AutoModel.from_pretrained(tmp_path / name).state_dict() for name in "abc"]
    assert all(torch.equal(x, states[1][name]) for name, x in states[0].items())
    assert {name for name, x in states[0].items() if not torch.equal(x, states[2][name])} <= set(record["new"])


@pytest.mark.follows("hfcomp/convert/join.py", "{source}: its pooler has no weights, so its pooled output is random.")
@pytest.mark.follows("hfcomp/convert/join.py", "{image} and {text} cannot be joined ({error}).")
def test_towers_without_a_pooled_output_are_refused(towers, clip, tmp_path):
    with pytest.raises(ValueError, match="classifier: its pooler has no weights.* ViT with pooler weights"):
        join_towers(towers / "classifier", towers / "bert", tmp_path / "out")
    with pytest.raises(ValueError, match="clip cannot be joined .*BERT"):
        join_towers(towers / "vit", clip, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    join_towers(towers / "vit", towers / "bert", tmp_path / "out")


def test_the_recipe_trains_the_text_tower(joined, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    tiny.pairs(24, ragged=False).save_to_disk(tmp_path / "rows")
    tiny.pairs(6).save_to_disk(tmp_path / "held_out")
    settings = {
        "model": joined,
        "dataset": tmp_path / "rows",
        "captions": "longest",
        "evaluation": "own",
        "evaluation_dataset": tmp_path / "held_out",
        "batch_size": 8,
        "mini_batch_size": 3,
        "max_steps": 2,
        "warmup_steps": 0,
        "bf16": "false",
        "dataloader_num_workers": 0,
        "save_strategy": "no",
        "page": "false",
        "output_dir": tmp_path / "run",
        "overlap": "allow",
    }
    cli.main(["train", "lit/coco", *(str(word) for name, value in settings.items() for word in (f"--{name}", value))])
    before = VisionTextDualEncoderModel.from_pretrained(joined).state_dict()
    after = VisionTextDualEncoderModel.from_pretrained(tmp_path / "run" / "method").state_dict()
    moved = {name for name, x in after.items() if not torch.equal(x, before[name])}
    image = {name for name in before if name.startswith(("vision_model.", "visual_projection."))}
    assert moved and not moved & image
    assert {"text_projection.weight", "logit_scale", "text_model.pooler.dense.weight"} <= moved
    assert json.loads((tmp_path / "run" / "results.json").read_text())["results"]
