"""Published sizes of a recipe's effects."""

from __future__ import annotations

import pytest

from hfcomp.experiments.prepare import published_effects
from hfcomp.experiments.recipes import read_recipe


def test_the_main_job_has_the_effects_of_the_paper_s_table_2():
    effects = {
        (effect["model"], effect["reference"]): effect
        for effect in published_effects(read_recipe("slipform").experiment)
    }
    shown = {pair: round(100 * effect["value"], 2) for pair, effect in effects.items()}
    assert shown["Slipform", "static-margin"] == 0.11 and shown["Slipform", "same-batch"] == 0.29
    assert effects["Slipform", "static-margin"]["place"] == "Im et al. 2026, Table 2"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"published_measure": "Im et al. 2026, Table 2: mean"}, "'Im et al. 2026, Table 2: mean' .*no published"),
        ({"published_models": {"Slipform": "Slipfrm"}}, "published_models: 'Slipfrm' .*'Slipform'"),
    ],
)
def test_a_name_without_published_numbers_is_a_mistake(change, fault):
    config = read_recipe("slipform").experiment.model_copy(update=change)
    with pytest.raises(ValueError, match=fault):
        published_effects(config)
