"""What a run leaves on disk: plain models that load anywhere, and checkpoints."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor, CLIPModel, SiglipModel

from hfcomp.modeling import OBJECTIVE_STATE_FILE
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.info_nce import InfoNCETrainer
from tests import tiny, tolerances
from tests.trainers.own_objective import OwnTrainer
from tests.trainers.runs import assert_same_weights, batch_of, build, history, weights

MODELS = [("clip", CLIPModel), ("old_clip", CLIPModel), ("siglip", SiglipModel), ("siglip2", SiglipModel)]


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


@torch.no_grad()
@pytest.mark.parametrize(("model", "kind"), MODELS)
def test_the_saved_folder_loads_plain_without_missing_or_unexpected_keys(model, kind, request, pairs, tmp_path):
    source = request.getfixturevalue(model)
    with torch.enable_grad():
        trainer = build(CementTrainer, source, pairs, tmp_path, max_steps=1)
        trainer.train()
        trainer.save_model(str(tmp_path / "final"))
    for loader in (kind, AutoModel):
        plain, info = loader.from_pretrained(tmp_path / "final", output_loading_info=True)
        assert type(plain) is kind
        assert not any(info.values()), info
    for name, parameter in plain.named_parameters():
        assert torch.equal(parameter, trainer.model.backbone.get_parameter(name)), name
    processor = AutoProcessor.from_pretrained(tmp_path / "final")
    images, texts = [tiny.image(3)], ["a red cube on a blue ball"]
    settings = {"padding": "max_length", "max_length": tiny.TEXT_LENGTH, "return_tensors": "pt"}
    inputs = processor(images=images, text=texts, **settings)
    expected = AutoProcessor.from_pretrained(source)(images=images, text=texts, **settings)
    assert torch.equal(inputs["input_ids"], expected["input_ids"])
    assert torch.equal(inputs["pixel_values"], expected["pixel_values"])
    # and gives the very embeddings that were trained
    outputs = plain.eval()(input_ids=inputs["input_ids"], pixel_values=inputs["pixel_values"])
    batch = trainer.data_collator([{"row": 0, "image": images[0], "caption": texts[0], "negative_captions": [""]}])
    trainer.model.eval()
    features = trainer.gather_features(trainer.model, batch)
    torch.testing.assert_close(features.image_embeds, outputs.image_embeds, atol=tolerances.embedding(), rtol=0)
    torch.testing.assert_close(features.text_embeds, outputs.text_embeds, atol=tolerances.embedding(), rtol=0)


@pytest.mark.parametrize("model", ["clip", "old_clip", "siglip"])
def test_the_saved_configuration_is_the_authors(model, request, pairs, tmp_path):
    source = request.getfixturevalue(model)
    AutoModel.from_pretrained(source).save_pretrained(tmp_path / "untouched")
    trainer = build(InfoNCETrainer, source, pairs, tmp_path, max_steps=1)
    trainer.train()
    trainer.save_model(str(tmp_path / "final"))
    saved, expected = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("final", "untouched"))
    assert saved == expected
    if model == "old_clip":
        assert saved["text_config"]["eos_token_id"] == 2
        assert trainer.model.config.text_config.eos_token_id != 2


def test_an_old_repository_has_the_layout_it_claims(old_clip):
    assert "processor_config.json" not in names(old_clip)
    assert "tokenizer.json" not in names(old_clip)
    assert {"vocab.json", "merges.txt", "preprocessor_config.json"} <= names(old_clip)


@torch.no_grad()
def test_an_old_repository_gives_the_embeddings_of_its_new_form(old_clip, clip, pairs, tmp_path):
    # the same weights, but the tokens of the two have other ids: pixels must agree, texts must pool at their end
    first, second = (build(InfoNCETrainer, folder, pairs, tmp_path) for folder in (old_clip, clip))
    for trainer in (first, second):
        trainer.model.eval()
    old, new = (trainer.gather_features(trainer.model, batch_of(trainer, range(4))) for trainer in (first, second))
    torch.testing.assert_close(old.image_embeds, new.image_embeds, atol=tolerances.embedding(), rtol=0)
    ids = batch_of(first, range(4))["input_ids"]
    for row, end in enumerate(ids.argmax(dim=1).tolist()):
        cut = first.model.backbone.get_text_features(input_ids=ids[row : row + 1, : end + 1]).pooler_output
        cut = torch.nn.functional.normalize(cut, dim=-1)
        torch.testing.assert_close(old.text_embeds[row : row + 1], cut, atol=tolerances.embedding(), rtol=0)


def test_the_final_folder_holds_no_pickle(clip, pairs, tmp_path):
    trainer = build(OwnTrainer, clip, pairs, tmp_path, max_steps=1, num_negatives=2)
    trainer.train()
    trainer.save_model(str(tmp_path / "final"))
    files = names(tmp_path / "final")
    assert {"model.safetensors", "config.json", OBJECTIVE_STATE_FILE, "processor_config.json"} <= files
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pth", ".pkl"))]
    state = load_file(tmp_path / "final" / OBJECTIVE_STATE_FILE)
    assert torch.equal(state["objective_state.offset.value"], trainer.model.objective_state.offset.value.detach())
    assert set(load_file(tmp_path / "final" / "model.safetensors")) == set(load_file(clip / "model.safetensors"))


def test_the_best_model_is_loaded_at_the_end(clip, pairs, tmp_path):
    settings = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    settings |= {"load_best_model_at_end": True, "metric_for_best_model": "chosen", "greater_is_better": True}
    scores = iter([0.1, 0.9, 0.5])
    trainer = build(
        OwnTrainer,
        clip,
        pairs,
        tmp_path,
        num_negatives=2,
        eval_dataset=pairs,
        compute_metrics=lambda _: {"chosen": next(scores)},
        **settings,
    )
    trainer.train()
    assert trainer.state.best_model_checkpoint.endswith("checkpoint-2")
    best = load_file(tmp_path / "run" / "checkpoint-2" / "model.safetensors")
    for name, value in best.items():
        assert torch.equal(trainer.model.backbone.state_dict()[name], value), name
    state = load_file(tmp_path / "run" / "checkpoint-2" / OBJECTIVE_STATE_FILE)
    assert torch.equal(trainer.model.objective_state.offset.value, state["objective_state.offset.value"])
    last = load_file(tmp_path / "run" / "checkpoint-3" / "model.safetensors")
    assert not torch.equal(last["text_projection.weight"], best["text_projection.weight"])


def test_old_checkpoints_are_deleted_and_the_last_resumes(clip, pairs, tmp_path):
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 2}
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, **settings)
    trainer.train()
    assert {name for name in names(tmp_path / "run") if "checkpoint" in name} == {"checkpoint-3", "checkpoint-4"}
    resumed = build(InfoNCETrainer, clip, pairs, tmp_path, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    assert_same_weights(weights(resumed), weights(trainer))


def test_a_trained_model_is_trained_on_from_its_folder(clip, pairs, tmp_path):
    first = build(InfoNCETrainer, clip, pairs, tmp_path, max_steps=1)
    first.train()
    first.save_model(str(tmp_path / "final"))
    second = build(CementTrainer, tmp_path / "final", pairs, tmp_path, max_steps=1)
    assert_same_weights(weights(second), weights(first))
    second.train()


def test_another_objectives_checkpoint_is_refused(clip, pairs, tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    build(InfoNCETrainer, clip, pairs, tmp_path, **settings).train()
    other = build(OwnTrainer, clip, pairs, tmp_path, num_negatives=2, **settings)
    with pytest.raises(ValueError, match="offset.*trainer"):
        other.train(resume_from_checkpoint=True)
    assert not history(other, "loss")
