"""COLA (Ray et al. 2023), several objects: which of two photographs has these things with these attributes?"""

from __future__ import annotations

from functools import partial

from hfcomp.evaluation.benchmarks.readers.choices import pairs
from hfcomp.evaluation.benchmarks.readers.visual_genome import VISUAL_GENOME, both_photographs
from hfcomp.evaluation.protocols.group_match import GroupMatch
from hfcomp.evaluation.sources import Adapted, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark

FILE = "COLA_multiobjects_matching_benchmark.json"
WEB = "https://raw.githubusercontent.com/arijitray1993/COLA/1fa52fba9cff4e6ffb7bfcf3550838748347273b/data"
_LAYOUT = f"{FILE} of github.com/arijitray1993/COLA and a folder visual_genome/"

COLA = Benchmark(
    name="cola",
    title="COLA multi-object",
    suite=COMPOSITIONAL,
    protocol=GroupMatch(metrics=("image", "group", "text")),  # the paper's score is the image score
    data=(Adapted(RawFiles((FILE,), partial(pairs, file=FILE), _LAYOUT, web=WEB), both_photographs),),
    paper="Ray et al. 2023, arXiv:2305.03689",
    licence="MIT (the repository); images of Visual Genome, CC BY 4.0",
    obtain=f"Its texts are downloaded automatically. {VISUAL_GENOME.obtain}",
)
