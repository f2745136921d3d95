"""Rules of CI."""

from __future__ import annotations

import pytest

from hfcomp.analysis.audit.checks import CHECKS, Check, Example, parse_limits, skipped_check


def test_a_check_fails_above_its_limit_and_where_it_was_not_made():
    checks = {
        "blind": Check("blind", 60.1),
        "overlap": Check("overlap", 5.0),
        "image_probe": skipped_check("image_probe", "no"),
    }
    limits = parse_limits(["blind > 60", "overlap>5%", "image_probe>70", "blind>60.5"])
    reasons = [limit.reason(checks) for limit in limits]
    assert reasons[1] is None and reasons[3] is None
    assert reasons[0] == f"blind is 60.1, above 60: {CHECKS['blind']}"
    assert reasons[2] == "image_probe was not checked: no"


def test_a_number_that_chance_reaches_passes_and_one_above_it_fails():
    limit = parse_limits(["blind>60"])[0]
    by_chance = {"blind": Check("blind", 65.0, chance=57.0, chance_high=66.7)}
    assert limit.reason(by_chance) is None and limit.within_chance(by_chance)
    above = {"blind": Check("blind", 70.0, chance=57.0, chance_high=66.7)}
    assert limit.reason(above).endswith("(by chance 57.0, at most 66.7)") and not limit.within_chance(above)
    below = {"blind": Check("blind", 59.0, chance=57.0, chance_high=66.7)}
    assert limit.reason(below) is None and not limit.within_chance(below)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("blnd>60", "'blnd'.*'blind'"),
        ("blind<60", r"'blind<60'.*NAME>PERCENT"),
        ("blind", "expected NAME>PERCENT"),
        ("blind>sixty", "expected NAME>PERCENT"),
    ],
)
def test_other_rules_are_refused(rule, said):
    with pytest.raises(ValueError, match=said):
        parse_limits([rule])


def test_an_example_in_the_first_row_keeps_its_row():
    (first,) = Check("blind", 60.0, examples=(Example(0, "a cat", other_row=0),)).to_json()["examples"]
    assert first == {"row": 0, "text": "a cat", "other_row": 0}
