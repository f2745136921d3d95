"""Lines that only some of the models were scored on: they are in no table of all models, and a note names them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from hfcomp.statistics import Outcomes
from hfcomp.statistics.outcomes import LINE
from hfcomp.statistics.results import ITEMS_FILE


def shared_lines(outcomes: Outcomes, models: Sequence[str]) -> Outcomes:
    """The outcomes of lines that every model has: a benchmark may have failed for one model alone."""
    table = outcomes.table
    kept = table.groupby(LINE, sort=False)["arm"].transform("nunique") == len(models)
    return outcomes if kept.all() else Outcomes(table[kept])


def unshared_notes(outcomes: Outcomes, shared: Outcomes, models: Sequence[str]) -> list[str]:
    """What was scored for some of the models alone, with who was scored and who was not.

    A benchmark that has no shared line is named once, else each of its metrics.

    Args:
        outcomes: of all models.
        shared: their `shared_lines`.
        models: in the order in which they are named.
    """
    shown = set(shared.table["benchmark"])
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for (benchmark, _, metric), arms in outcomes.table.groupby(LINE, sort=False)["arm"].unique().items():
        owners = tuple(name for name in models if name in arms)
        if len(owners) < len(models):
            found[f"{benchmark}, {metric}" if benchmark in shown else benchmark, owners] = None
    return [
        f"{what}: scored for {_listed(owners)}, not shown because {_listed([*others])} "
        f"{'has' if len(others) == 1 else 'have'} no scores of it. {ITEMS_FILE} has the outcomes"
        f"{_how_to_compare(owners)}."
        for what, owners in found
        if (others := [name for name in models if name not in owners])
    ]


def _listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def _how_to_compare(owners: Sequence[str]) -> str:
    """How to see outcomes of some models alone; one model is not compared with anything."""
    if len(owners) < 2:
        return ""
    words = shlex.join([f"FOLDER:{name}" for name in owners])
    return f"; `hfcomp compare {words}` compares these models, of the output FOLDER"
