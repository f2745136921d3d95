"""How a model is probed; the fields are the options of `hfcomp probe`, their descriptions its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hfcomp.analysis.pairs.options import DataOptions

MOST = 50
"""Largest margin: exp(50) times the easy negatives are more than any batch has."""


@dataclass(kw_only=True)
class ProbeOptions(DataOptions):
    """Batches and margins.

    Attributes:
        batch_sizes: pairs in a batch, before their negatives double it; sizes larger than the set are left out.
        margins: logits added to the hard negative.
        rows: pairs that the batches are drawn from, each of another photograph.
        mask_equal_texts: leave equal texts out of each other's negatives, like the trainers' field of this name; by
            default they are negatives, as in the paper.
        seed: random seed of the drawn pairs and their order.
        device: such as cpu or cuda:1; by default a GPU if there is one.
        no_cache: encode everything again and keep nothing.
    """

    output_dir: Path = Path("runs/probe")
    batch_sizes: tuple[int, ...] = (48, 256, 512, 1024)
    margins: tuple[float, ...] = (0.0, 1.0, 2.0)
    rows: int = 4096
    mask_equal_texts: bool = False
    seed: int = 0
    device: str | None = None
    no_cache: bool = False

    def __post_init__(self) -> None:
        self.batch_sizes, self.margins = tuple(sorted({*self.batch_sizes})), tuple(sorted({*self.margins}))
        for name in ("batch_sizes", "margins"):
            if not getattr(self, name):
                raise ValueError(f"{name}: found none, expected one or more numbers.")
        numbers = {name: getattr(self, name) for name in ("rows", "limit", "seed")} | {
            "batch_sizes": self.batch_sizes[0]
        }
        for name, number in numbers.items():
            least = 0 if name == "seed" else 2
            if number is not None and number < least:
                raise ValueError(f"{name}: found {number}, expected {least} or more.")
        if wrong := [margin for margin in self.margins if not abs(margin) <= MOST]:
            raise ValueError(f"margins: found {wrong[0]:g}, expected logits from {-MOST} to {MOST}.")
