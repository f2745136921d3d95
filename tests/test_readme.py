"""The Python of README and docs runs as it stands, on small stand-ins for what it loads from the Hub."""

from __future__ import annotations

import re
from pathlib import Path

import datasets
import pytest

from hfcomp import CompositionalConfig
from tests import tiny

REPOSITORY = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), flags=re.DOTALL)


@pytest.fixture
def small(clip, tmp_path, monkeypatch):
    """Replaces ids, sizes and folders; the rest of a block stays as the page has it."""
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: tiny.pairs(8))

    def change(block: str) -> str:
        for old, new in {
            "openai/clip-vit-base-patch32": str(clip),
            "runs/cement": str(tmp_path / "cement"),
            "per_device_train_batch_size=256": "per_device_train_batch_size=8, use_cpu=True, max_steps=1",
        }.items():
            block = block.replace(old, new)
        return block

    return change


def test_the_readme_trains_and_evaluates(small):
    train, evaluate = blocks("README.md")
    exec(small(train), {})
    names = {"photo": tiny.image(0)}
    exec(small(evaluate), names)
    assert names["texts"].shape == (2, 16)


def test_the_objective_of_the_docs_trains(clip, tmp_path):
    (block,) = blocks("docs/adding_an_objective.md")
    names: dict = {"__name__": "my_module"}
    exec(block, names)
    config = CompositionalConfig(str(tmp_path), use_cpu=True, max_steps=2, per_device_train_batch_size=4)
    trainer = names["MyTrainer"](clip, config, train_dataset=tiny.pairs(8))
    trainer.train()
    assert trainer.model.objective_state["temperature"].logarithm.item() != 0
