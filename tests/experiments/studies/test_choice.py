"""The choice of a setting on a control: by the rule, in any order; what is not scored is named before training."""

from __future__ import annotations

import json

import pytest
import yaml

from hfcomp.experiments.studies.plan_files import read_plan
from hfcomp.experiments.studies.plans import ChoicePlan
from hfcomp.experiments.studies.sweep import run_sweep
from hfcomp.experiments.studies.sweep_report import choice_section, choice_verdict, choose_setting

PLAN = ChoicePlan(keep=["sandbox retrieval: image-to-text recall@1", "sandbox zero-shot: place accuracy"])
NAMES = ("sandbox: macro of 5 subsets group", *PLAN.keep)


def lines_of(primary: float, *general: float) -> list[dict]:
    """The base has 0.3 on the endpoint and 0.8 on each general line."""
    values = dict(zip(NAMES, (primary, *general), strict=True))
    base = dict(zip(NAMES, (0.3, 0.8, 0.8), strict=True))
    return [
        {"name": name, "models": {"base": {"value": base[name]}, "same-batch": {"value": value}}}
        | ({"primary": name} if name == NAMES[0] else {})
        for name, value in values.items()
    ]


@pytest.mark.parametrize(
    ("settings", "chosen", "is_kept"),
    [
        ({"fast": (0.9, 0.5, 0.5), "slow": (0.4, 0.79, 0.8), "slower": (0.35, 0.8, 0.8)}, "slow", True),
        ({"slower": (0.35, 0.8, 0.8), "slow": (0.4, 0.8, 0.78), "fast": (0.9, 0.5, 0.5)}, "slow", True),
        ({"fast": (0.9, 0.5, 0.5), "slow": (0.4, 0.7, 0.8)}, "slow", False),
        ({"first": (0.4, 0.8, 0.8), "second": (0.4, 0.9, 0.9)}, "first", True),
    ],
)
def test_the_highest_endpoint_that_keeps_general_abilities_is_chosen_else_what_loses_least(settings, chosen, is_kept):
    choice = choose_setting({name: lines_of(*values) for name, values in settings.items()}, "same-batch", PLAN)
    assert (choice.chosen.setting, choice.is_kept) == (chosen, is_kept)
    said = choice_verdict(choice, PLAN)
    assert f"{chosen} (" in said and said.startswith("Chosen" if is_kept else "No setting keeps") and NAMES[0] in said
    table, rule = choice_section(choice, PLAN).parts
    assert [row[0] for row in table.rows] == list(settings) and "at most 1.0 points" in rule.texts[0]


def test_the_base_and_the_control_alone_decide_on_scenes_of_another_seed(tmp_path):
    path = tmp_path / "mine.yaml"
    plan = {
        "seeds": [7],
        "scenes": 1,
        "settings": {"fast": {"learning_rate": 1e-2}, "slow": {"learning_rate": 1e-5}},
        "variants": {"same-batch": {"control": "same-batch"}},
        "reference": "same-batch",
        "choose": {"keep": list(PLAN.keep)},
    }
    path.write_text(yaml.safe_dump(plan))
    small = ["--max_steps", "1", "--dataset_rows", "60", "--evaluation_items", "8", "--disable_tqdm", "true"]
    folder = run_sweep(read_plan("slipform", ["--report", str(path), *small, "--output_dir", str(tmp_path / "run")]))
    results = json.loads((folder / "sweep.json").read_text())
    choice = results["results"]["choice"]
    assert choice["chosen"] in choice["candidates"] and choice["control"] == "same-batch"
    assert [candidate["setting"] for candidate in choice["candidates"]] == ["fast", "slow"]
    assert {path.name for path in (folder / "fast" / "7").iterdir()} == {"same-batch"}
    assert "Chosen from the scores of same-batch alone: " in (folder / "report.md").read_text()
    path.write_text(yaml.safe_dump(plan | {"choose": {"keep": ["sandbox retrieval: recall"]}}))
    with pytest.raises(ValueError, match="choose: keep: 'sandbox retrieval: recall'"):
        run_sweep(read_plan("slipform", ["--report", str(path), *small, "--output_dir", str(tmp_path / "other")]))
