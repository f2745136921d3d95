"""Builds MAGIC, CLEAR GLASS's training set (arXiv:2509.12771), from your own captioned images.

`python dataset_builders/magic/build.py --source coco --split train2017 --output data/magic --base_url
http://127.0.0.1:8000/v1` builds the hierarchy and its groups from rows whose license allows adaptation, and
`--push_to_hub my-org/magic` pushes them. Repeat the command to resume. It has the options of `hfcomp build magic`, and
`--any_license`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hfcomp.errors import one_line_errors
from hfcomp.factory.command import build_and_report
from hfcomp.factory.magic.options import MagicOptions
from hfcomp.factory.publishing import build_and_push

CARD = Path(__file__).parent / "README.md"


def build(given: dict[str, Any]) -> Path:
    """Builds the dataset."""
    return build_and_report(MagicOptions(**given)).folder


if __name__ == "__main__":
    with one_line_errors():
        build_and_push(sys.argv[1:], MagicOptions, build, card=CARD)
