"""Cards of models on the Hub: they pass its validation, and a trainer's push brings its own."""

from __future__ import annotations

import inspect

import pytest
import yaml
from huggingface_hub import ModelCard, parse_eval_result_entries

from tests.evaluation.evaluations import benchmark_facts
from tests.experiments.lines import GROUP, all_lines, line
from tests.hub.card_rules import card_errors
from tests.hub.running import run_in_hub
from tests.reporting.cards.test_runs import card

VALIDATE = """
import sys
from huggingface_hub import ModelCard
for path in sys.argv[1:]:
    ModelCard.load(path).validate()
"""
PUSH = """
import sys
from hfcomp.sandbox import training_set
from hfcomp.trainers import CementConfig, CementTrainer
from transformers import AutoModel
args = CementConfig(output_dir=sys.argv[2], max_steps=1, per_device_train_batch_size=4, hub_model_id="me/tuned")
trainer = CementTrainer(sys.argv[1], args, train_dataset=training_set(8, 1))
trainer.train()
trainer.push_to_hub(license="apache-2.0", language="en", tags=["mine"])
"""
"""A push of transformers, with what users pass on to the card."""


@pytest.mark.skipif(
    "https://huggingface.co" in inspect.getsource(ModelCard.validate),
    reason="this huggingface_hub (as 2.0 and older) asks huggingface.co itself, whatever HF_ENDPOINT says",
)
def test_cards_of_runs_pass_the_validation_of_the_hub(hub, tmp_path):
    (tmp_path / "method").mkdir()
    lines = [*all_lines(), line("swap_att", "group", GROUP["swap_att"], benchmark="SugarCrepe")]
    config = {"model": "openai/clip-vit-base-patch32", "dataset": "my-org/my-pairs"}
    card(tmp_path, lines=lines, benchmarks=benchmark_facts(), config=config)
    run_in_hub(hub, VALIDATE, tmp_path / "README.md", tmp_path / "method" / "README.md")
    assert hub.count("POST /api/validate-yaml") == 2


BROKEN = [
    ("base_model: /home/somebody/clip", "base_model"),
    ("license: mine", "license"),
    ("tags: [1]", "tags"),
    ("datasets: [a b]", "datasets"),
    ("model-index: [{name: x, results: [{task: {type: y}, dataset: {type: z}, metrics: []}]}]", "dataset.name"),
    ("a: [", "not YAML"),
]


@pytest.mark.parametrize(("metadata", "error"), BROKEN)
def test_the_stand_in_refuses_what_the_hub_refuses(metadata, error):
    assert error in " ".join(card_errors(f"---\n{metadata}\n---\n# x\n"))


def test_a_push_of_a_trainer_brings_its_own_card(hub, clip, tmp_path):
    run_in_hub(hub, PUSH, clip, tmp_path / "run")
    files = hub.repository(None, "me/tuned").files
    text = files["README.md"].content.decode()
    data = ModelCard(text).data
    assert (data.license, data.language) == ("apache-2.0", "en") and "mine" in data.tags and "slipform" in data.tags
    assert 'AutoModel.from_pretrained("me/tuned")' in text and '"Slipform=me/tuned"' in text
    assert "Trainer had access to" not in text and str(tmp_path) not in text and str(clip.parent) not in text
    assert card_errors(text) == []


def test_results_of_a_run_go_to_the_hub_in_its_own_format(hub, tmp_path):
    (tmp_path / "method").mkdir()
    lines = [line("swap_att", "group", GROUP["swap_att"], benchmark="SugarCrepe")]
    card(tmp_path, lines=lines, benchmarks=benchmark_facts())
    (path,) = (tmp_path / ".eval_results").glob("*.yaml")
    (entry,) = parse_eval_result_entries(yaml.safe_load(path.read_text()))
    assert entry.dataset_id == "somebody/crepe"
    upload = "import sys; from huggingface_hub import HfApi; api = HfApi(); api.create_repo('me/run'); "
    upload += "api.upload_folder(repo_id='me/run', folder_path=sys.argv[1])"
    run_in_hub(hub, upload, tmp_path)
    assert f".eval_results/{path.name}" in hub.repository(None, "me/run").files
