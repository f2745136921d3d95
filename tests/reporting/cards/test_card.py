"""A card and its template: all that is stated comes from the card, and which files are replaced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jinja2
import pytest
import yaml
from huggingface_hub import EvalResultEntry, ModelCardData

from hfcomp.reading import shipped_folder
from hfcomp.reporting.cards import card as cards
from hfcomp.reporting.cards.card import OWN_MARK, Card, render_card, write_card
from hfcomp.reporting.cards.methods import values_table, whose, without_secrets
from hfcomp.reporting.report import Section, Table

CARD = Card(
    metadata=ModelCardData(tags=["hfcomp"]),
    title="Mine",
    summary="A model.",
    objective="my_module:MyTrainer",
    provenance={"base": "a | b"},
    values=values_table({"margin": 1}, sources={}),
    environment={"torch": "2.13"},
)


def test_a_card_needs_no_more_than_what_every_training_knows():
    text = render_card(CARD)
    for heading in ("# Mine", "## Use", "## Method", "## Results", "## Training", "## Limits", "## Citation"):
        assert f"\n{heading}\n" in text
    assert "Not evaluated" in text and "| base | a &#124; b |" in text
    assert "\n\n\n" not in text and text.endswith("\n") and not text.endswith("\n\n")


def test_no_part_of_a_whole_card_runs_into_another():
    whole = replace(
        CARD,
        caveat="Synthetic.",
        verdict=("It is better.", "It forgets."),
        figure=("figure.png", "results"),
        results=(
            Section("Composition", [Table("a", ["", "base"], [["x", "1"]])]),
            Section("Ties", [Table("b", ["c"], [["d"]])]),
        ),
        legend="Percent.",
        evaluate="hfcomp evaluate x",
        overlap=("none",),
        command=("hfcomp train x", "bash"),
        recipe="a: 1",
        costs=Table("", ["run"], [["plain"]]),
        limits=("One seed.",),
        notes=("A note.",),
    )
    lines = render_card(whole).splitlines()
    for number, text in enumerate(lines):
        starts = text.startswith(("#", "> ", "**", "![", "| --- |", "<details"))
        if starts and not text.startswith("| ---"):
            assert lines[number - 1] == "", text
    assert "\n\n\n" not in "\n".join(lines)


def test_a_word_of_the_template_that_no_card_has_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "template.md").write_text("{{ tittle }}")
    monkeypatch.setattr(cards, "shipped_folder", lambda *_: tmp_path)
    with pytest.raises(jinja2.UndefinedError, match="tittle"):
        render_card(CARD)


def test_the_template_comes_with_the_package():
    assert "{{ title | plain }}" in (shipped_folder("model_cards", "template.md") / "template.md").read_text()
    with pytest.raises(FileNotFoundError, match="Reinstall hfcomp"):
        shipped_folder("model_cards", "*.nothing")


@pytest.mark.parametrize(
    "there",
    [
        f"---\n---\n{OWN_MARK}\n# Before\n",
        "<!-- written by hfcomp, and again when the model is saved or pushed: remove this line to keep changes -->",
        "---\nlibrary_name: peft\n---\n# Model Card for Model ID\n[More Information Needed]\n",
        "<!-- This card has been generated automatically according to the information the Trainer had access to. -->",
    ],
)
def test_cards_that_no_person_wrote_are_replaced(tmp_path: Path, there):
    (tmp_path / "README.md").write_text(there)
    assert write_card(tmp_path, CARD)
    assert "# Mine" in (tmp_path / "README.md").read_text()


def test_results_that_others_added_to_a_repository_stay(tmp_path: Path):
    folder = tmp_path / ".eval_results"
    folder.mkdir()
    other = [{"dataset": {"id": "cais/hle", "task_id": "default"}, "value": 1, "notes": "by hand"}]
    (folder / "other.yaml").write_text(yaml.safe_dump(other))
    entry = EvalResultEntry("me/crepe", "swap-group", 0.5, notes="swap, scored with hfcomp 1")
    write_card(tmp_path, replace(CARD, eval_files={"me-crepe.yaml": [entry]}))
    assert {path.name for path in folder.iterdir()} == {"other.yaml", "me-crepe.yaml"}
    write_card(tmp_path, CARD)
    assert {path.name for path in folder.iterdir()} == {"other.yaml"}


@pytest.mark.parametrize(
    ("said", "owner", "note"),
    [
        ("paper, section 3.2: HN1", "paper's", "section 3.2: HN1"),
        ("code", "code's", ""),
        ("code's default: no clipping", "code's", "default: no clipping"),
        ("ours: 2e-5", "ours", "2e-5"),
        ("papers", "not stated", "papers"),
        ("", "not stated", ""),
    ],
)
def test_a_comment_says_whose_a_value_is(said, owner, note):
    assert whose(said) == (owner, note)


def test_values_of_a_card_hold_no_token():
    assert without_secrets({"hub_token": "x", "run": "hf_" + "a" * 20}) == {"run": "TOKEN"}
    assert values_table({"hub_token": "x", "method": "y"}, sources={}).rows == []
