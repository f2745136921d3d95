"""CREPE (Ma et al. 2023): a region of Visual Genome and its caption among hard negatives."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.older import regions
from hfcomp.evaluation.benchmarks.readers.visual_genome import VISUAL_GENOME
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

WEB = "https://raw.githubusercontent.com/RAIVNLab/CREPE/1fa81c425f442396fe304f170c8eb6dc0747c814/data"
BY_NEGATIVES = tuple(
    Average(kind, (tuple(f"{kind} {number}" for number in regions.COMPLEXITIES),)) for kind in regions.NEGATIVES
)
TASKS = (
    ("productivity", "productivity", regions.productivity(WEB), BY_NEGATIVES),
    *(
        (f"systematicity_{key}", f"systematicity {of}", regions.systematicity(WEB, key), ())
        for key, of in regions.TRAINED_ON.items()
    ),
)

CREPE = tuple(
    Benchmark(
        name=f"crepe_{name}",
        title=f"CREPE {title}",
        suite=COMPOSITIONAL,
        protocol=CaptionChoice(),
        data=data,
        averages=averages,
        paper="Ma et al. 2023, arXiv:2212.07796",
        licence="not stated; images of Visual Genome, CC BY 4.0",
        obtain=f"Its texts come by themselves. {VISUAL_GENOME.obtain}",
        in_suites=False,
        folder="crepe",
    )
    for name, title, data, averages in TASKS
)
