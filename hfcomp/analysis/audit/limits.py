"""Limits for CI: `NAME>VALUE` fails where the check's number is above the value, in percent, and above chance."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hfcomp.analysis.audit.checks import CHECKS, Check
from hfcomp.reading import nearest

ROUNDING = 1e-9
_RULE = re.compile(r"\s*(\w+)\s*>\s*(\d+(?:\.\d+)?)\s*%?\s*")


@dataclass(frozen=True)
class Limit:
    """A rule of `--fail_if`.

    Attributes:
        name: of a check.
        most: the largest number that passes, in percent.
    """

    name: str
    most: float

    def reason(self, checks: Mapping[str, Check]) -> str | None:
        """Why it fails, `None` where it passes; a check that was not made fails."""
        check = checks[self.name]
        if check.value is None:
            return f"{self.name} was not checked: {check.reason}"
        if check.value > self.most and not self.within_chance(checks):
            chance = (
                "" if math.isnan(check.chance) else f" (by chance {check.chance:.1f}, at most {check.chance_high:.1f})"
            )
            return f"{self.name} is {check.value:.1f}, above {self.most:g}: {CHECKS[self.name]}{chance}"
        return None

    def within_chance(self, checks: Mapping[str, Check]) -> bool:
        """Whether it passes only because a clean set of this size could have such a number by chance."""
        check = checks[self.name]
        return check.value is not None and self.most < check.value <= check.chance_high + ROUNDING


def parse_limits(texts: Iterable[str]) -> list[Limit]:
    """Rules such as `blind>60`.

    Raises:
        ValueError: for another form, or an unknown name, with the nearest one.
    """
    found = []
    for text in texts:
        match = _RULE.fullmatch(text)
        if match is None:
            raise ValueError(f"--fail_if: found {text!r}, expected NAME>PERCENT in quotes, as in 'blind>60'.")
        name, most = match.groups()
        if name not in CHECKS:
            raise ValueError(f"--fail_if: unknown check {name!r}.{nearest(name, CHECKS)} Known: {', '.join(CHECKS)}.")
        found.append(Limit(name, float(most)))
    return found
