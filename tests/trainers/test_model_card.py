"""The card of a model that is trained through the API: written when the model is saved, and what it may say."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from peft import LoraConfig, get_peft_model

from hfcomp.modeling import load_backbone, load_processor
from hfcomp.trainers import CementTrainer, InfoNCETrainer
from tests.reporting.cards.test_runs import section
from tests.trainers.runs import build

SECRET = "hf_" + "a1B2" * 8
COMMIT = "d" * 40


@pytest.fixture
def trainer(clip, pairs, tmp_path):
    return build(InfoNCETrainer, clip, pairs, tmp_path, learning_rate=3e-4, hub_token=SECRET)


def read_card(trainer) -> ModelCard:
    trainer.save_model()
    return ModelCard.load(Path(trainer.args.output_dir) / "README.md")


def test_a_saved_model_has_a_card_that_says_what_was_trained_and_that_nothing_was_scored(trainer, clip):
    trainer.train()
    read = read_card(trainer)
    assert read.data.tags == ["hfcomp", "compositionality", "infonce"]
    assert (read.data.library_name, read.data.pipeline_tag) == ("transformers", "zero-shot-image-classification")
    assert read.data.eval_results is None
    training = section(read.text, "## Training")
    assert "16 pairs on 1 process, 2 steps" in training or "8 pairs on 1 process, 2 steps" in training
    assert "| learning_rate | 0.0003 | user's |" in training and "| 2 | " in section(training, "### Cost")
    assert "Not evaluated" in section(read.text, "## Results") and "hfcomp evaluate " in read.text
    assert "@article{oord2018cpc" in read.text
    assert SECRET not in read.content and str(clip.parent) not in read.content


def test_the_code_in_the_card_trains_the_same(trainer):
    text = section(read_card(trainer).text, "## Training")
    code = text.partition("```python\n")[2].partition("```")[0]
    names: dict = {}
    exec(code.partition("trainer = ")[0], names)  # rows are the user's
    assert names["args"].learning_rate == trainer.args.learning_rate == 3e-4
    assert names["args"].per_device_train_batch_size == trainer.args.per_device_train_batch_size
    assert "InfoNCETrainer(" in code and "hub_token" not in code


def test_replay_is_in_the_card_and_in_its_code(clip, pairs, tmp_path):
    general = pairs.select(range(10)).select_columns(["image", "caption"])
    text = section(
        read_card(build(InfoNCETrainer, clip, pairs, tmp_path, replay_fraction=0.5, replay_dataset=general)).text,
        "## Training",
    )
    assert "| replay | 10 general rows, 8 per batch" in text
    assert "replay_fraction=0.5," in text and "train_dataset=rows, replay_dataset=general)" in text
    assert "# general: a datasets.Dataset of images and captions" in text


def test_defaults_of_the_objective_are_listed_as_such(clip, pairs, tmp_path):
    read = read_card(build(CementTrainer, clip, pairs, tmp_path, margin_maximum=3.0))
    values = section(read.text, "### Values")
    assert "| margin_maximum | 3.0 | user's |" in values and "| margin_minimum | -2.0 | default |" in values
    assert "im2026concretejungle" in read.text


def test_base_and_data_are_those_of_the_hub_with_their_commits(trainer):
    trainer.model.plain.config._name_or_path = "me/clip"
    trainer.model.plain.name_or_path = "me/clip"
    trainer.model.plain.config._commit_hash = COMMIT
    trainer.train_dataset.dataset.info.download_checksums = {f"hf://datasets/me/pairs@{'e' * 40}/0.parquet": {}}
    read = read_card(trainer)
    assert (read.data.base_model, read.data.base_model_relation, read.data.datasets) == (
        "me/clip",
        "finetune",
        ["me/pairs"],
    )
    text = section(read.text, "## Training")
    assert f"| base revision | {COMMIT} |" in text and f"me/pairs, commit {'e' * 40}" in text
    assert 'load_dataset("me/pairs"' in text and f'revision="{"e" * 40}"' in text
    assert "hfcomp evaluate base=me/clip" in read.text


def test_an_objective_of_the_user_s_own_is_named_by_its_module(clip, pairs, tmp_path):
    kind = type("MyTrainer", (CementTrainer,), {"__module__": "my_module"})
    read = read_card(build(kind, clip, pairs, tmp_path))
    assert "from my_module import MyTrainer" in read.text and "fine-tuned with MyTrainer" in read.text
    assert "im2026concretejungle" in read.text


def test_what_was_scored_during_training_is_in_the_card(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, eval_dataset=pairs)
    trainer.train()
    trainer.evaluate()
    results = section(read_card(trainer).text, "## Results")
    assert "Scores during training" in results and "step 2; no intervals" in results
    assert "| loss |" in results and "Not evaluated" not in results


def test_an_adapter_s_card_loads_it_on_its_base(clip, pairs, tmp_path):
    model = get_peft_model(load_backbone(clip), LoraConfig(target_modules=["q_proj", "v_proj"]))
    processor = load_processor(clip, argument="processor")
    read = read_card(build(InfoNCETrainer, model, pairs, tmp_path, processing_class=processor))
    assert read.data.library_name == "peft"
    assert "PeftModel.from_pretrained(base" in read.text and "More Information Needed" not in read.text


def test_checkpoints_have_no_card(clip, pairs, tmp_path):
    trainer = build(InfoNCETrainer, clip, pairs, tmp_path, save_strategy="steps", save_steps=1)
    trainer.train()
    assert (tmp_path / "run" / "checkpoint-1" / "model.safetensors").is_file()
    assert not list(tmp_path.glob("run/**/README.md"))


def test_what_push_to_hub_passes_on_is_in_the_metadata(trainer):
    trainer.create_model_card(
        language="en", license="apache-2.0", tags="fashion", finetuned_from="me/other", dataset=["me/set"]
    )
    data = ModelCard.load(Path(trainer.args.output_dir) / "README.md").data
    assert (data.language, data.license, data.base_model, data.datasets) == (
        "en",
        "apache-2.0",
        "me/other",
        ["me/set"],
    )
    assert data.tags == ["hfcomp", "compositionality", "infonce", "fashion"]


def test_a_card_that_its_user_changed_stays(trainer, caplog):
    path = Path(trainer.args.output_dir) / "README.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# My model\n")
    trainer.save_model()
    trainer.create_model_card()
    assert path.read_text() == "# My model\n"
    assert f"{path} was edited by hand" in caplog.text
