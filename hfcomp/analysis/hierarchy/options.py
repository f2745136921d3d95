"""Output of `hfcomp analyze magic`; the fields are its options, their descriptions its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(kw_only=True)
class HierarchyOptions:
    """Output.

    Attributes:
        output_dir: receives concepts.html and report.md.
        overwrite: replace them.
        thumbnails: pictures of each concept.
    """

    output_dir: Path = Path("runs/concepts")
    overwrite: bool = False
    thumbnails: int = 8

    def __post_init__(self) -> None:
        if self.thumbnails < 0:
            raise ValueError(f"thumbnails: found {self.thumbnails}, expected 0 or more.")
