"""Adapters that were trained: merged into a plain model, loaded with their state, refused without their base. 40 s."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor

import hfcomp
from hfcomp.modeling import OBJECTIVE_STATE_FILE, load_backbone, load_config
from hfcomp.modeling.adapters import load_merged
from hfcomp.modeling.checkpoints import MODULE_CONFIG_FILE
from hfcomp.trainers.ahnpl import AHNPLTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny, tolerances
from tests.trainers.runs import build

IDS = torch.tensor([[3, 4, 5, 6, 1]])
PIXELS = torch.randn((2, 3, tiny.IMAGE_SIZE, tiny.IMAGE_SIZE), generator=torch.Generator().manual_seed(0))


def train_adapter(model: Path, pairs, folder: Path, trainer=InfoNCETrainer, **settings) -> Path:
    """The folder of an adapter after a few large steps."""
    run = build(trainer, model, pairs, folder, max_steps=3, learning_rate=3e-2, **{"peft": "lora", **settings})
    run.train()
    run.save_model(str(folder / "adapter"))
    return folder / "adapter"


def features(backbone) -> torch.Tensor:
    with torch.no_grad():
        texts = backbone.eval().get_text_features(input_ids=IDS).pooler_output
        images = backbone.get_image_features(pixel_values=PIXELS).pooler_output
    return torch.nn.functional.normalize(torch.cat([texts, images]), dim=-1)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("clip", {"peft": "lora", "lora_targets": ["attention", "mlp", "head"]}),
        ("clip", {"peft": "dora"}),
        ("metaclip2", {"peft": "dora", "lora_targets": ["attention", "head"]}),
        ("siglip", {"peft": "lora", "lora_targets": ["attention", "head", "pooling"]}),
        ("siglip2", {"peft": "dora", "lora_targets": ["mlp", "head"]}),
    ],
)
def test_a_merged_adapter_is_a_plain_model_with_its_features_and_scale(model, settings, request, pairs, tmp_path):
    base = request.getfixturevalue(model)
    adapter = train_adapter(base, pairs, tmp_path, **settings)
    assert hfcomp.merge_adapter(adapter, tmp_path / "merged") == tmp_path / "merged"
    plain, info = AutoModel.from_pretrained(tmp_path / "merged", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    expected = features(load_backbone(adapter))
    assert (expected - features(AutoModel.from_pretrained(base))).abs().max() > 1e-2
    torch.testing.assert_close(features(plain), expected, atol=tolerances.embedding(), rtol=0)
    # PEFT alone finds the same
    alone = PeftModel.from_pretrained(AutoModel.from_pretrained(base), adapter)
    torch.testing.assert_close(features(alone), expected, atol=0, rtol=0)

    scale = load_file(adapter / OBJECTIVE_STATE_FILE)["backbone.base_model.model.logit_scale"]
    assert torch.equal(plain.logit_scale, scale)
    assert not torch.equal(scale, AutoModel.from_pretrained(base).logit_scale)
    assert {path.name for path in (tmp_path / "merged").iterdir()} >= {"config.json", "tokenizer_config.json"}
    # sentence-transformers pads a SigLIP's texts wrongly without them; a CLIP needs none
    assert (tmp_path / "merged" / MODULE_CONFIG_FILE).is_file() == model.startswith("siglip")
    assert not (tmp_path / "merged" / OBJECTIVE_STATE_FILE).exists()
    assert AutoProcessor.from_pretrained(tmp_path / "merged") is not None


def test_the_objectives_own_state_lies_beside_the_merged_model_as_beside_a_plain_one(clip, pairs, tmp_path):
    adapter = train_adapter(clip, pairs, tmp_path, AHNPLTrainer, num_negatives=2)
    hfcomp.merge_adapter(adapter, tmp_path / "merged")
    whole, own = (load_file(folder / OBJECTIVE_STATE_FILE) for folder in (adapter, tmp_path / "merged"))
    assert set(whole) == {"backbone.base_model.model.logit_scale", *own}
    assert own and all(torch.equal(whole[name], value) for name, value in own.items())
    build(AHNPLTrainer, tmp_path / "merged", pairs, tmp_path, num_negatives=2).model.load_pretrained(
        tmp_path / "merged"
    )


def test_a_merged_model_can_be_trained(clip, pairs, tmp_path):
    merged = load_merged(train_adapter(clip, pairs, tmp_path))
    assert all(parameter.requires_grad for parameter in merged.parameters())
    assert not [name for name in merged.state_dict() if "lora" in name or "base_layer" in name]


@pytest.mark.parametrize("settings", [{"peft": "dora"}, {"lora_targets": ["pooling"]}], ids=["dora", "pooling"])
def test_the_configuration_of_an_adapter_is_read_without_its_weights(settings, siglip, pairs, tmp_path):
    assert load_config(train_adapter(siglip, pairs, tmp_path, **settings)).model_type == "siglip"


def test_an_adapter_is_merged_into_a_new_folder_only(clip, pairs, tmp_path):
    adapter = train_adapter(clip, pairs, tmp_path)
    (tmp_path / "merged").mkdir()
    (tmp_path / "merged" / "notes.txt").write_text("mine")
    with pytest.raises(OSError, match="merged .*not an empty"):
        hfcomp.merge_adapter(adapter, tmp_path / "merged")
    assert (tmp_path / "merged" / "notes.txt").read_text() == "mine"
    with pytest.raises(ValueError, match="plain model.*not an adapter"):
        hfcomp.merge_adapter(clip, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.follows(
    "hfcomp/modeling/backbones.py", "base_model_name_or_path in its adapter_config.json: use a Hub id, or a"
)
@pytest.mark.parametrize("base", ["runs/gone/base", ""])
def test_an_adapter_whose_base_is_gone_is_named_with_how_to_fix_it(base, clip, pairs, tmp_path):
    adapter = shutil.copytree(train_adapter(clip, pairs, tmp_path), tmp_path / "moved")
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": base}))
    with pytest.raises(OSError, match=f"moved: .*'{base}'.*: no such"):
        load_backbone(adapter)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": str(clip)}))
    assert load_backbone(adapter)
