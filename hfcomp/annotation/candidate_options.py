"""Options of the candidates of `hfcomp annotate`; the fields are its options, their descriptions its help."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from hfcomp.annotation.captions import CONCEPTS
from hfcomp.generation.options import CaptionOptions


@dataclass(kw_only=True)
class CandidateOptions(CaptionOptions):
    """Candidates.

    Attributes:
        concepts: comma-separated.
        any_license: also images whose licence forbids adaptation, or is unknown.
        seed: of their order.
    """

    what: ClassVar[str] = "candidates"
    output: Path = field(default=Path(), init=False)
    captions: Literal["longest", "all"] = field(default="longest", init=False)  # image_rows reads whole lists
    shard_size: int = field(default=1, init=False)
    executor: Literal["local"] = field(default="local", init=False)
    num_workers: int = field(default=1, init=False)
    gpus_per_worker: float | None = field(default=None, init=False)
    only_adaptable: bool = field(default=True, init=False)
    concepts: tuple[str, ...] = CONCEPTS
    any_license: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = [name for name in self.concepts if name not in CONCEPTS]
        if wrong or not self.concepts:
            raise ValueError(f"concepts: found {', '.join(self.concepts)!r}, expected some of {', '.join(CONCEPTS)}.")
