"""Builds InpaintCOCO (arXiv:2403.02875), a visual challenge set: from your annotation project, or the published one.

`python dataset_builders/inpaintcoco/build.py --source runs/annotation --output data/inpaintcoco` builds a dataset from
the accepted items of `hfcomp annotate`. `--source phiyodr/InpaintCOCO` imports the published dataset and flags its bad
rows. `--push_to_hub my-org/inpaintcoco` pushes either one. Repeat the command to resume. It has the options of `hfcomp
build inpaintcoco`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hfcomp.errors import one_line_errors
from hfcomp.factory.command import build_and_report
from hfcomp.factory.inpaintcoco.options import InpaintCocoOptions
from hfcomp.factory.publishing import build_and_push

CARD = Path(__file__).parent / "README.md"


def build(given: dict[str, Any]) -> Path:
    """Builds the dataset."""
    return build_and_report(InpaintCocoOptions(**given)).folder


if __name__ == "__main__":
    with one_line_errors():
        build_and_push(sys.argv[1:], InpaintCocoOptions, build, card=CARD)
