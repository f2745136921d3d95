"""The recipe behind the sandbox's bases, at a size of seconds, and the bases that come with the package."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoProcessor, CLIPModel, SiglipModel

from hfcomp.evaluation.encoding.identity import weights_hash
from hfcomp.sandbox.bases import ARCHITECTURES, base_facts, base_folder

SCRIPT = Path(__file__).resolve().parents[2] / "recipes" / "sandbox_base.py"
CLASSES = {"clip": CLIPModel, "siglip": SiglipModel}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_recipe_writes_a_half_precision_model_with_its_processor_and_how_it_was_made(tmp_path, architecture):
    folder, main = tmp_path / "base", runpy.run_path(str(SCRIPT))["main"]
    words = f"--architecture {architecture} --seed 3 --steps 2 --rows 192 --items 2 --output_dir".split()
    main([*words, str(folder)])
    model, report = CLASSES[architecture].from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert {p.dtype for p in AutoModel.from_pretrained(folder, dtype="auto").parameters()} == {torch.float16}
    facts = json.loads((folder / "base.json").read_text())
    assert facts["command"].startswith("python recipes/sandbox_base.py") and "--seed 3 --steps 2" in facts["command"]
    assert [phase["steps"] for phase in facts["phases"]] == [2, 2, 2, 2] and facts["weights"] == weights_hash(folder)
    assert str(tmp_path) not in json.dumps(facts)
    assert [path.name for path in tmp_path.iterdir()] == ["base"]
    if architecture == "clip":
        main([*words, str(tmp_path / "again")])
        assert weights_hash(folder) == weights_hash(tmp_path / "again")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_shipped_bases_are_plain_small_and_what_their_facts_say(architecture):
    folder = base_folder(architecture)
    model = CLASSES[architecture].from_pretrained(folder, dtype=torch.float32)
    assert 0.6e6 < sum(parameter.numel() for parameter in model.parameters()) < 2e6
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4e6
    facts = base_facts(architecture)
    assert facts["weights"] == weights_hash(folder) and facts["architecture"] == architecture
    text = AutoProcessor.from_pretrained(folder).tokenizer("a red star above a blue ring")
    assert len(text["input_ids"]) <= model.config.text_config.max_position_embeddings


def test_an_unknown_architecture_is_refused():
    with pytest.raises(ValueError, match="'bert'.* clip, siglip"):
        base_folder("bert")
