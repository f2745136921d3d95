"""Blind rules of several folders of results, as `hfcomp compare` shows them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from hfcomp import cli, compare
from hfcomp.evaluation.blind.results import BlindResults, blind_outcomes, write_blind
from hfcomp.evaluation.blind.rules import BIGRAM, SHORTER, prior_of
from tests.evaluation.evaluations import crepe, recall, stored

RULE = crepe(SHORTER, 0.25, seed=1)
PRIOR = crepe(prior_of("clip"), 0.5, seed=2)


def counted(place: str) -> dict:
    return {"SugarCrepe": {"sugarcrepe": {"captions": 9, "place": place, "of_its_images": 0, "equal_texts": 0}}}


def folder(path: Path, *rules: pd.DataFrame, model: pd.DataFrame | None = None, captions: str = "") -> str:
    """Of one model on two benchmarks, one of which is no choice among texts, with what blind rules made of them."""
    table = crepe("clip", 0.5) if model is None else model
    blind = None
    if rules:
        about = {"captions": counted(captions) if captions else {}, "not_applicable": ["COCO"]}
        blind = BlindResults(blind_outcomes(rules), {} if captions else {BIGRAM: "no captions"}, **about)
    found = stored(path, table, recall("clip", 0.6), blind=blind)
    write_blind(found, blind)
    return str(found)


def test_rules_of_folders_that_agree_stand_once_and_the_prior_of_each_model_beside_them(tmp_path, capsys):
    given = [folder(tmp_path / name, RULE, PRIOR) for name in ("a", "b")]
    results = compare(given)
    facts = results._blind_facts
    assert list(facts["rules"]) == [SHORTER, prior_of("clip (a)"), prior_of("clip (b)")]
    macro = facts["lines"][0]
    assert macro["subset"] == "macro of 2" and macro["rules"][SHORTER]["value"] == 0.25
    assert macro["rules"][prior_of("clip (b)")]["value"] == 0.5
    (left,) = facts["unsolved"]
    assert (left["items"], left["of"], list(left["models"])) == (60, 80, ["clip (a)", "clip (b)"])
    assert facts["skipped"] == {BIGRAM: "no captions"} and facts["not_applicable"] == ["COCO"]
    assert results.notes == []
    cli.main(["compare", *given])
    assert "Blind baselines" in capsys.readouterr().out


def test_a_folder_without_blind_rules_is_named_and_its_model_is_on_the_items_that_are_left(tmp_path):
    without = folder(tmp_path / "b")
    results = compare([folder(tmp_path / "a", RULE, PRIOR), without])
    assert results.notes == [f"{without}: its results have no blind baselines; those of other folders are shown"]
    assert list(results._blind_facts["rules"]) == [SHORTER, prior_of("clip (a)")]
    assert list(results._blind_facts["unsolved"][0]["models"]) == ["clip (a)", "clip (b)"]
    assert compare([without, folder(tmp_path / "c")])._blind_facts is None


def test_a_rule_that_chooses_otherwise_in_another_folder_is_left_out_with_the_reason(tmp_path):
    bigrams = [crepe(BIGRAM, 0.5, seed=seed) for seed in (3, 4)]
    one = folder(tmp_path / "a", RULE, bigrams[0], captions="coco")
    other = folder(tmp_path / "b", RULE, bigrams[1], captions="own.txt")
    results = compare([one, other])
    assert list(results._blind_facts["rules"]) == [SHORTER]
    (note,) = results.notes
    assert note.startswith(f"SugarCrepe: the blind rule {BIGRAM} differs in ")
    assert note.endswith(f"is left out: {one} counted 9 captions of coco and {other} counted 9 captions of own.txt")
    texts = folder(tmp_path / "c", crepe(SHORTER, 0.25, seed=5))
    (note,) = compare([folder(tmp_path / "d", RULE), texts]).notes
    assert SHORTER in note and note.endswith("is left out: the texts of the items are not the same")


def test_with_common_items_rules_are_of_these_alone(tmp_path):
    table = crepe("clip", 0.5)
    less = folder(tmp_path / "b", RULE[RULE["item"] != "swap/7"], model=table[table["item"] != "swap/7"])
    results = compare([folder(tmp_path / "a", RULE, PRIOR), less], common=True)
    lines = {line["subset"]: line for line in results._blind_facts["lines"]}
    assert lines["swap"]["items"] == 39 and results._blind_facts["unsolved"][0]["of"] == 79
    assert not any("blind rule" in note for note in results.notes)
