"""What a challenge set is built with; the fields are the options of `hfcomp build inpaintcoco`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from hfcomp.data.annotations.entries import Quality
from hfcomp.data.annotations.project import DATABASE
from hfcomp.generation.options import BuildOptions

_OF_DATA_SETS = ("config", "columns")


@dataclass(kw_only=True)
class InpaintCocoOptions(BuildOptions):
    """Pairs of an image and the same with one thing repainted (InpaintCOCO).

    The source is the folder of an annotation project, or a data set in the layout of phiyodr/InpaintCOCO.

    Attributes:
        quality: of a project, only pairs of this one, which is the lower of annotator's and reviewer's rating.
        concepts: only these, comma-separated; by default all.
        any_license: also images whose licence forbids adaptation, or is unknown.
        shard_size: rows of the source per file; a row has three images.
        split: of a data set.
    """

    what: ClassVar[str] = "inpaintcoco"
    column_names: str = field(default="", init=False)
    only_adaptable: bool = field(default=True, init=False)
    split: str = "test"
    shard_size: int = 200
    quality: Quality | None = None
    concepts: tuple[str, ...] = ()
    any_license: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.only_adaptable = not self.any_license
        if self.is_project:
            given = [name for name in _OF_DATA_SETS if getattr(self, name) is not None]
            if given:
                raise ValueError(f"--{given[0]} is of data sets; {self.source} is an annotation project.")
        elif self.quality is not None:
            raise ValueError(
                f"--quality is of annotation projects; {self.source} is none: it has no {DATABASE}. Leave it out."
            )

    @property
    def is_project(self) -> bool:
        """Whether the source is an annotation project."""
        return (Path(self.source) / DATABASE).is_file()
