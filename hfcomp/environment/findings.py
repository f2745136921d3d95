"""One fact of the machine, and what it means for hfcomp."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

OK, NOTE, BROKEN = "ok", "note", "broken"


@dataclass(frozen=True)
class Finding:
    """A fact.

    Attributes:
        area: that it belongs to: `packages`, `extras`, `devices`, `storage` or `hub`.
        name: what was looked at.
        found: in words.
        state: `ok`, `note` for what some uses need, `broken` for what all need.
        fix: what to do; empty for nothing.
    """

    area: str
    name: str
    found: str
    state: Literal["ok", "note", "broken"] = OK
    fix: str = ""


Check = Callable[[], Iterator[Finding]]


def findings_of(area: str, check: Check) -> list[Finding]:
    """What a check finds; one that fails itself is a finding too, so that the others are still shown.

    Args:
        area: of the check.
        check: gives findings one by one.
    """
    found = []
    try:
        for one in check():
            found.append(one)
    except Exception as error:  # of whatever library is broken here
        reason = f"{type(error).__name__}: {error}"
        found.append(Finding(area, "check", f"failed with {reason}", BROKEN, f"Fix what {area} failed with."))
    return found
