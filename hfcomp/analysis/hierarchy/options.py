"""Options of `hfcomp analyze magic`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hfcomp.options import Options, Size


@dataclass(kw_only=True)
class HierarchyOptions(Options):
    """Output."""

    output_dir: Annotated[Path, "Folder that receives concepts.html and report.md."] = Path("runs/concepts")
    overwrite: Annotated[bool, "Replace them."] = False
    thumbnails: Annotated[Size, "Pictures of each concept."] = 8
