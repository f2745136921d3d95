"""Options of `hfcomp analyze magic`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hfcomp.options import Options, Size


@dataclass(kw_only=True)
class HierarchyOptions(Options):
    """Output."""

    output_dir: Annotated[Path, "Folder for concepts.html and report.md."] = Path("runs/concepts")
    overwrite: Annotated[bool, "Replace an existing page and report."] = False
    thumbnails: Annotated[Size, "Number of images per concept."] = 8
