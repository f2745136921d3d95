"""The sandbox's levels of abstraction as a benchmark, with rivals of hard-negative groups as CLEAR GLASS scores them.

The sandbox's own evaluation draws its rivals from all images and has one choice, between two. This one is asked for by
`hfcomp levels`, or as `hfcomp.experiments.sandbox_levels:SANDBOX_LEVELS` wherever benchmarks are named.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hfcomp.data.loading import undecoded
from hfcomp.evaluation.protocols.level_choice import LEVELS, LevelChoice
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark, Folders, Items, Origin

ROWS = 500


@dataclass(frozen=True)
class DrawnLevels:
    """Rows of `hfcomp.sandbox.levels_set`, drawn here.

    Attributes:
        rows: how many.
        seed: of the scenes; held out of training whatever it is.
    """

    rows: int = ROWS
    seed: int = 0

    layout = "nothing: it is drawn"

    def local(self, folder: Path, folders: Folders) -> Items | None:
        """Nothing: no folder holds it."""
        return None

    def remote(self, folders: Folders) -> Items:
        """The rows."""
        from hfcomp.sandbox import levels_set

        rows = undecoded(levels_set(self.rows, self.seed))
        return Items(rows, Origin(f"the sandbox: levels_set({self.rows}, {self.seed})"))


SANDBOX_LEVELS = Benchmark(
    name="sandbox_levels",
    title="sandbox levels, hard",
    suite=COMPOSITIONAL,
    protocol=LevelChoice(("caption", *LEVELS)),
    data=(DrawnLevels(),),
    paper="this package",
    licence="as this package",
    obtain="It is drawn when it is asked for.",
)
