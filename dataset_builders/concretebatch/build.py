"""Builds ConcreteBatch, Slipform's training pairs (Concrete Jungle, arXiv 2604.13313), from your own dataset.

`python dataset_builders/concretebatch/build.py --source coco --output data/concretebatch --base_url
http://127.0.0.1:8000/v1 --concreteness_ratings FILE` builds the paper's three configurations from rows whose license
allows adaptation, and `--push_to_hub my-org/concretebatch` pushes them. Repeat the command to resume. It has the
options of `hfcomp build concretebatch`, and `--any_license`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hfcomp.errors import one_line_errors
from hfcomp.factory.command import build_and_report
from hfcomp.factory.concretebatch.chain import CONFIGS, ConcreteBatchOptions
from hfcomp.factory.publishing import build_and_push

CARD = Path(__file__).parent / "README.md"


def build(given: dict[str, Any]) -> Path:
    """Builds the requested configurations, by default all."""
    return build_and_report(ConcreteBatchOptions(**{"configs": tuple(CONFIGS), **given})).folder


if __name__ == "__main__":
    with one_line_errors():
        build_and_push(sys.argv[1:], ConcreteBatchOptions, build, card=CARD)
