"""The image tower of a tiny CLIP in a tiny LLaVA."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    CLIPConfig,
    CLIPModel,
    CLIPVisionModel,
    SiglipConfig,
    SiglipModel,
)

from hfcomp import cli
from hfcomp.checksums import read_checked
from hfcomp.convert import export_llava
from hfcomp.evaluation.models import pair_model
from hfcomp.evaluation.pairs.models import VQAScorer
from tests import tiny
from tests.evaluation.pairs import readers


@pytest.fixture(scope="module")
def llava(clip, tmp_path_factory):
    return readers.llava(tmp_path_factory.mktemp("models") / "llava", CLIPConfig.from_pretrained(clip).vision_config)


@pytest.fixture(scope="module")
def tuned_clip(tmp_path_factory):
    """A CLIP of the same sizes with other weights."""
    return tiny.clip(tmp_path_factory.mktemp("models") / "tuned", seed=7)


@pytest.fixture(scope="module")
def llava_export(tuned_clip, llava, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "llava-tuned"
    return export_llava(tuned_clip, llava, folder), folder


def pixels(folder):
    return AutoProcessor.from_pretrained(folder).image_processor([tiny.image(3)], return_tensors="pt")["pixel_values"]


def test_the_towers_features_are_those_of_the_clip(llava_export, tuned_clip, llava):
    _, folder = llava_export
    model, info = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    images = pixels(folder)
    with torch.inference_mode():
        features = model.eval().model.vision_tower(images, output_hidden_states=True).hidden_states[-2]
        own = CLIPVisionModel.from_pretrained(tuned_clip).eval()(images, output_hidden_states=True).hidden_states[-2]
        before = AutoModelForImageTextToText.from_pretrained(llava).eval().model.vision_tower
        old = before(images, output_hidden_states=True).hidden_states[-2]
    torch.testing.assert_close(features, own, rtol=0, atol=0)
    assert (old - own).abs().max() > 0.01


def test_all_but_the_tower_stays(llava_export, llava):
    _, folder = llava_export
    new, old = (AutoModelForImageTextToText.from_pretrained(path).state_dict() for path in (folder, llava))
    changed = {name for name in old if not torch.equal(new[name], old[name])}
    assert changed and all(".vision_tower." in name for name in changed)
    assert AutoProcessor.from_pretrained(folder).chat_template == AutoProcessor.from_pretrained(llava).chat_template


def test_the_record_says_what_was_replaced_and_what_is_left_to_do(llava_export, tuned_clip, llava):
    record, folder = llava_export
    assert read_checked(folder / "conversion.json", "") == record
    assert (record["source"], record["llava"], record["vision_tower"]) == (tuned_clip.name, llava.name, "CLIPModel")
    assert 0 < record["replaced"]["changed"] <= record["replaced"]["tensors"]
    assert record["pixels"] == {} and "connector" in record["note"]
    assert str(tuned_clip.parent) not in json.dumps(record)


def test_the_result_is_scored_by_vqascore(llava_export, llava):
    _, folder = llava_export
    assert pair_model(folder) is VQAScorer
    with torch.inference_mode():
        new, old = (
            VQAScorer(path, device="cpu").log_probabilities([tiny.image(0)], ["a cone"]) for path in (folder, llava)
        )
    assert abs((new - old).item()) > 1e-4


def test_the_llavas_precision_is_kept(tuned_clip, llava, tmp_path):
    AutoModelForImageTextToText.from_pretrained(llava, dtype=torch.bfloat16).save_pretrained(tmp_path / "half")
    AutoProcessor.from_pretrained(llava).save_pretrained(tmp_path / "half")
    record = export_llava(tuned_clip, tmp_path / "half", tmp_path / "out")
    assert record["dtype"] == "bfloat16"
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "out", dtype="auto")
    assert {value.dtype for value in model.state_dict().values() if value.is_floating_point()} == {torch.bfloat16}


def test_a_siglip_goes_into_a_llava_of_siglip_with_its_pooling_or_without(siglip, tmp_path):
    vision = SiglipConfig.from_pretrained(siglip).vision_config
    vision.vision_use_head = False
    record = export_llava(siglip, readers.llava(tmp_path / "llava", vision), tmp_path / "out")
    tower = AutoModelForImageTextToText.from_pretrained(tmp_path / "out").model.vision_tower
    own = SiglipModel.from_pretrained(siglip).vision_model.state_dict()
    assert record["replaced"]["tensors"] == sum(not name.startswith("head.") for name in own)
    for name, value in tower.state_dict().items():
        assert torch.equal(value, own[name.removeprefix("vision_model.")]), name  # before transformers 5.6


def test_another_tower_is_refused_with_what_differs(siglip, llava, clip, tmp_path):
    config = CLIPConfig.from_pretrained(clip)
    config.vision_config.patch_size = 8
    CLIPModel(config).save_pretrained(tmp_path / "finer")
    with pytest.raises(ValueError, match="patch_size 8 .* 16"):
        export_llava(tmp_path / "finer", llava, tmp_path / "out")
    with pytest.raises(ValueError, match="model_type 'siglip_vision_model' .*'clip_vision_model'"):
        export_llava(siglip, llava, tmp_path / "out")
    with pytest.raises(ValueError, match="expected .*LLaVA"):
        export_llava(clip, clip, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_was_done(tuned_clip, llava, tmp_path, capsys):
    folder = tmp_path / "out"
    cli.main(["convert", str(tuned_clip), "--to", "llava", "--llava", str(llava), "--output", str(folder)])
    said = capsys.readouterr().out
    assert f"{llava.name}: 39 tensors replaced, 15 of them changed" in said and said.endswith(f"written: {folder}\n")
    for words in (["--to", "llava"], ["--llava", str(llava)]):
        with pytest.raises(SystemExit, match="--to llava .*--llava MODEL"):
            cli.main(["convert", str(tuned_clip), *words, "--output", str(folder)])
