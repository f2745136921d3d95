"""Weights that are not whole are refused wherever a model is loaded, with the names of what is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoProcessor, CLIPModel

from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.experiments import command
from hfcomp.modeling import OBJECTIVE_STATE_FILE, DualEncoder, load_backbone, load_config
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny
from tests.trainers.runs import build

State = dict[str, torch.Tensor]
WEIGHTS, ADAPTER = "model.safetensors", "adapter_model.safetensors"
QUERY = "vision_model.encoder.layers.0.self_attn.q_proj.weight"


def change_copy(folder: Path, copy: Path, change: Callable[[State], State], file: str = WEIGHTS) -> Path:
    """A copy of a folder with other tensors in one file."""
    shutil.copytree(folder, copy)
    save_file(change(load_file(copy / file)), copy / file, metadata={"format": "pt"})
    return copy


def without(*parts: str) -> Callable[[State], State]:
    return lambda state: {name: value for name, value in state.items() if not any(part in name for part in parts)}


def with_more(*names: str) -> Callable[[State], State]:
    return lambda state: state | {name: torch.zeros(2) for name in names}


def smaller(name: str) -> Callable[[State], State]:
    return lambda state: state | {name: state[name][:-1].contiguous()}


def refusal(folder: Path) -> str:
    """The message of every way of loading, which is the same."""
    messages = set()
    for load in (load_backbone, load_config, Embedder):
        with pytest.raises(ValueError) as caught:
            load(folder)
        messages.add(str(caught.value))
    (said,) = messages
    assert "save_pretrained" in said
    return said


# A plain model


def test_a_missing_weight_is_named_with_the_folder(model_folder, tmp_path):
    folder = change_copy(model_folder, tmp_path / "model", without(QUERY))
    assert refusal(folder).startswith(f"{folder}: the weights lack ['{QUERY}']")


def test_of_many_the_first_are_named_and_all_counted(clip, tmp_path):
    said = refusal(change_copy(clip, tmp_path / "model", without("text_model")))
    assert "lack ['text_model.embeddings.position_embedding.weight', " in said and "] (36 in total), so" in said


def test_a_missing_scale_is_no_detail(siglip, tmp_path):
    assert "['logit_bias', 'logit_scale']" in refusal(change_copy(siglip, tmp_path / "model", without("logit_")))


def test_a_weight_of_another_shape_is_named_with_both(clip, tmp_path):
    name = "text_model.encoder.layers.0.mlp.fc1.weight"
    said = refusal(change_copy(clip, tmp_path / "model", smaller(name)))
    assert f"['{name} [63, 32] instead of [64, 32]']" in said


def test_a_layer_that_the_configuration_leaves_out_is_named(clip, tmp_path):
    name = "text_model.encoder.layers.2.mlp.fc1.weight"
    assert f"contain unexpected ['{name}']" in refusal(change_copy(clip, tmp_path / "model", with_more(name)))


def test_weights_under_other_names_are_shown_beside_those_that_are_missing(clip, tmp_path):
    folder = change_copy(
        clip, tmp_path / "model", lambda state: {f"net.{name}": value for name, value in state.items()}
    )
    said = refusal(folder)
    assert "lack ['logit_scale', " in said and "contain unexpected ['net.logit_scale', " in said


@pytest.mark.parametrize("damage", [lambda data: data[:40], lambda data: data[:-5]], ids=["header", "end"])
def test_a_file_that_was_cut_is_named_as_damaged(clip, tmp_path, damage):
    folder = shutil.copytree(clip, tmp_path / "model")
    (folder / WEIGHTS).write_bytes(damage((folder / WEIGHTS).read_bytes()))
    assert refusal(folder).startswith(f"{folder}: the weights are damaged or truncated")


PICKLED = {"cut": lambda data: data[: len(data) // 2], "empty": lambda data: b"", "page": lambda data: b"<html>" * 99}


@pytest.mark.parametrize("damage", PICKLED)
def test_a_pickled_file_that_is_damaged_is_named(clip, tmp_path, damage):
    folder = shutil.copytree(clip, tmp_path / "model")
    (folder / WEIGHTS).unlink()
    path = folder / "pytorch_model.bin"
    torch.save(load_file(clip / WEIGHTS), path)
    load_backbone(folder)
    path.write_bytes(PICKLED[damage](path.read_bytes()))
    assert refusal(folder).startswith(f"{path}: the weights are damaged or truncated")
    path.unlink()
    with pytest.raises(OSError, match="no file named"):
        load_backbone(folder)


@pytest.mark.parametrize("name", ["ignore_mismatched_sizes", "trust_remote_code", "output_loading_info"])
def test_what_loading_decides_itself_is_not_an_argument(clip, name):
    with pytest.raises(ValueError, match=f"load_backbone .*{name}"):
        load_backbone(clip, **{name: True})


def test_what_old_checkpoints_and_other_heads_have_more_is_no_obstacle(old_clip, tmp_path, caplog):
    more = ("text_model.embeddings.position_ids", "vision_model.embeddings.position_ids", "classifier.weight")
    folder = change_copy(old_clip, tmp_path / "model", with_more(*more))
    actual, expected = load_backbone(folder).state_dict(), load_backbone(old_clip).state_dict()
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert load_config(folder).model_type == "clip"
    (said,) = {line for line in caplog.messages if "classifier.weight" in line}
    assert "['classifier.weight']" in said and "position_ids" not in caplog.text


def test_a_pickled_checkpoint_is_checked_too(clip, tmp_path):
    folder = shutil.copytree(clip, tmp_path / "model")
    torch.save(without(QUERY)(load_file(folder / WEIGHTS)), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    assert f"lack ['{QUERY}']" in refusal(folder)


# Where it would be used


def test_nothing_of_a_refused_model_is_cached(clip, tmp_path):
    folder = change_copy(clip, tmp_path / "model", without(QUERY))
    with pytest.raises(ValueError, match="lack"):
        Embedder(folder, cache=EmbeddingCache(tmp_path / "cache")).texts(["a cat"])
    assert not list(tmp_path.glob("cache/**/*.safetensors"))


def test_no_trainer_starts_from_it(clip, pairs, tmp_path):
    folder = change_copy(clip, tmp_path / "model", without(QUERY))
    with pytest.raises(ValueError, match="lack"):
        build(InfoNCETrainer, folder, pairs, tmp_path)


def test_a_recipe_ends_with_one_line_before_it_takes_a_folder(clip, tmp_path):
    folder = change_copy(clip, tmp_path / "model", without(QUERY))
    words = ["--config", "slipform/vit_b32_coco", "--model", str(folder), "--dataset", "any"]
    with pytest.raises(SystemExit, match="^error: .*model: the weights lack"):
        command.main("slipform", [*words, "--output_dir", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [(without(QUERY), f"lack \\['{QUERY}'\\]"), (smaller(QUERY), f"{QUERY} \\[31, 32\\] instead of \\[32, 32\\]")],
    ids=["missing", "shape"],
)
def test_a_checkpoint_of_a_run_is_refused_and_changes_no_weight(clip, tmp_path, change, said):
    model = DualEncoder(load_backbone(clip))
    other = tiny.clip(tmp_path / "other", seed=3)
    folder = change_copy(other, tmp_path / "checkpoint", change)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=said):
        model.load_pretrained(folder)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


# Adapters


@pytest.fixture(scope="module")
def adapters(clip, tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("adapters")
    settings = {"plain": {}, "dora": {"use_dora": True}, "modules": {"modules_to_save": ["text_projection"]}}
    for name, more in settings.items():
        torch.manual_seed(0)
        model = get_peft_model(CLIPModel.from_pretrained(clip), LoraConfig(r=2, target_modules=["q_proj"], **more))
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if "lora_B" in key:
                    parameter.normal_()
        if name == "plain":
            model.base_model.model.logit_scale.requires_grad_(True)
        DualEncoder(model).save_pretrained(place / name)
        AutoProcessor.from_pretrained(clip).save_pretrained(place / name)
    return {name: place / name for name in settings}


@pytest.mark.parametrize("name", ["plain", "dora", "modules"])
def test_a_whole_adapter_loads_as_it_was_saved(adapters, name):
    folder = adapters[name]
    state = load_file(folder / ADAPTER)
    weights = load_backbone(folder).state_dict()
    for key, value in state.items():
        stem, _, end = key.rpartition(".")
        places = (f"{stem}.default.{end}", f"{stem}.modules_to_save.default.{end}", f"{key}.default.weight")
        (place,) = (place for place in places if place in weights)
        torch.testing.assert_close(weights[place], value, rtol=0, atol=0)
    load_config(folder)


@pytest.mark.parametrize(
    ("name", "part"), [("plain", "layers.0"), ("dora", "layers.0"), ("modules", "text_projection")]
)
def test_an_adapter_without_some_of_its_weights_is_refused(adapters, tmp_path, name, part):
    folder = change_copy(adapters[name], tmp_path / "adapter", without(part), ADAPTER)
    said = refusal(folder)
    assert said.startswith(f"{folder}: the weights") and "lack" in said and part in said


def test_an_adapter_that_was_cut_or_has_other_weights_is_refused(adapters, tmp_path):
    more = "base_model.model.text_model.encoder.layers.5.self_attn.q_proj.lora_A.weight"
    assert more in refusal(change_copy(adapters["plain"], tmp_path / "more", with_more(more), ADAPTER))
    first = min(load_file(adapters["plain"] / ADAPTER))
    said = refusal(change_copy(adapters["plain"], tmp_path / "shape", smaller(first), ADAPTER))
    assert f"{first} [1, 32] instead of [2, 32]" in said
    cut = shutil.copytree(adapters["plain"], tmp_path / "cut")
    (cut / ADAPTER).write_bytes((cut / ADAPTER).read_bytes()[:-3])
    assert "damaged or truncated" in refusal(cut)


def test_an_adapter_of_an_incomplete_base_is_refused_naming_the_base(clip, tmp_path):
    base = shutil.copytree(clip, tmp_path / "base")
    model = get_peft_model(AutoModel.from_pretrained(base), LoraConfig(r=2, target_modules=["q_proj"]))
    model.save_pretrained(tmp_path / "adapter")
    save_file(without(QUERY)(load_file(clip / WEIGHTS)), base / WEIGHTS, metadata={"format": "pt"})
    assert refusal(tmp_path / "adapter").startswith(f"{base}: the weights lack ['{QUERY}']")


def test_unfrozen_weights_beside_an_adapter_have_to_be_those_of_its_base(adapters, tmp_path):
    name = "backbone.base_model.model.logit_scale"
    assert name in load_file(adapters["plain"] / OBJECTIVE_STATE_FILE)
    for place, change, said in (
        ("other", with_more("backbone.base_model.model.gone"), "contain unexpected ['base_model.model.gone']"),
        ("shape", lambda state: state | {name: torch.zeros(3)}, "logit_scale [3] instead of []"),
    ):
        folder = change_copy(adapters["plain"], tmp_path / place, change, OBJECTIVE_STATE_FILE)
        assert said in refusal(folder)


def test_unfrozen_weights_that_were_saved_with_an_adapter_have_to_be_there(adapters, tmp_path):
    """An adapter's own files would load without them, and be scored with the base's values."""
    name = "backbone.base_model.model.logit_scale"
    alone = shutil.copytree(adapters["plain"], tmp_path / "alone")
    (alone / OBJECTIVE_STATE_FILE).unlink()
    assert refusal(alone).startswith(f"{alone}: no {OBJECTIVE_STATE_FILE}: the weights lack ['{name}']")
    less = change_copy(adapters["plain"], tmp_path / "less", without(name), OBJECTIVE_STATE_FILE)
    assert f"{OBJECTIVE_STATE_FILE}: the weights lack ['{name}']" in refusal(less)


def test_an_adapter_without_a_record_of_unfrozen_weights_loads_as_before(adapters, tmp_path):
    folder = change_copy(adapters["plain"], tmp_path / "older", lambda state: state, ADAPTER)
    (folder / OBJECTIVE_STATE_FILE).unlink()
    assert not load_backbone(folder).base_model.model.logit_scale.requires_grad


def test_a_folder_of_models_is_no_model_and_names_them(clip, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "method").symlink_to(clip)
    with pytest.raises(ValueError, match=r"run .*config.json.*: method\?"):
        load_config(tmp_path / "run")
