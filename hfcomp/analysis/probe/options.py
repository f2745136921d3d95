"""Options of `hfcomp probe`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from hfcomp.analysis.pairs.options import DataOptions
from hfcomp.options import Device, NoCache, Size, Spelling

MOST = 50
"""Largest margin. No batch has exp(50) times as many easy negatives."""
Pairs = Annotated[int, Field(ge=2)]
"""Number of pairs. With fewer than two, no pair has an easy negative."""


@dataclass(kw_only=True)
class ProbeOptions(DataOptions):
    """Batches and margins."""

    output_dir: Annotated[Path, "Folder for results.json, report.md, report.html and the figure."] = Path("runs/probe")
    caveat: Annotated[str, 'Sentence shown above the report, such as "Random weights: plumbing, not quality."'] = ""
    split: Annotated[str, "Split of the dataset."] = "train"
    config: Annotated[str | None, "Dataset configuration, if there are several."] = None
    limit: Annotated[Pairs | None, "Read only the first N rows of the dataset."] = None
    batch_sizes: Annotated[
        tuple[Pairs, ...],
        Field(min_length=1),
        Spelling(spaced=True),
        "Pairs per batch, before the negatives double the batch. Sizes larger than the dataset are left out.",
    ] = (48, 256, 512, 1024)
    margins: Annotated[
        tuple[Annotated[float, Field(ge=-MOST, le=MOST)], ...],
        Field(min_length=1),
        Spelling(spaced=True),
        "Margins in logits, added to the hard negative.",
    ] = (0.0, 1.0, 2.0)
    rows: Annotated[Pairs, "Number of pairs to draw batches from, one per photograph."] = 4096
    mask_equal_texts: Annotated[
        bool,
        "Do not count equal texts as each other's negatives (same as the trainer field of this name). By default they "
        "count as negatives, as in the paper.",
    ] = False
    seed: Annotated[Size, "Random seed for sampling the pairs and their order."] = 0
    device: Device = None
    no_cache: NoCache = False

    def __post_init__(self) -> None:
        self.batch_sizes, self.margins = tuple(sorted({*self.batch_sizes})), tuple(sorted({*self.margins}))
        super().__post_init__()
