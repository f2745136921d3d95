"""The share of captions that got no negative: shown, and an error where it is large."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from hfcomp.generation.text_negatives import NO_NEGATIVE, WITHOUT

NEGATIVES = "negatives"
"""The stage that makes negatives."""


class Share(NamedTuple):
    """Captions without a negative, among all that the stage got."""

    without: int
    captions: int

    @property
    def value(self) -> float:
        """The share, 0 to 1."""
        return self.without / max(1, self.captions)


def without_negative(manifest: Mapping[str, Any]) -> Share | None:
    """The share of a build; None for one that makes no negatives of captions.

    Args:
        manifest: of the build.
    """
    stages = manifest["plan"]["stages"].values()
    return _share(manifest) if any(stage["name"] == NEGATIVES for stage in stages) else None


def check_share(sums: Mapping[str, Any], *, most: float) -> None:
    """Raises ValueError for a larger share than allowed, with what to do.

    Args:
        sums: `rows`, `counts` and `set_aside` of a build.
        most: the largest share that is allowed.
    """
    share = _share(sums)
    if share.value <= most or not sums["rows"]:  # a set without rows is an error anyway
        return
    allowed = math.ceil(100 * share.value) / 100
    raise ValueError(
        f"{share.without:,} of {share.captions:,} captions ({share.value:.1%}) got no negative, more than "
        f"--max_without_negative {most:g} allows. Check that the captions are English sentences, and choose --kinds "
        "that fit them, in another folder. Or accept the share: repeat the command with --max_without_negative "
        f"{allowed:g}, which keeps what is built."
    )


def _share(sums: Mapping[str, Any]) -> Share:
    """Captions that were set aside for want of a negative count too."""
    return Share(sums["counts"].get(WITHOUT, 0), sums["rows"] + sums["set_aside"].get(NO_NEGATIVE, 0))
