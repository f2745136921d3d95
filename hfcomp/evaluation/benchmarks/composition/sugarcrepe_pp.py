"""SugarCrepe++ (Dumpala et al. 2024): do two captions that mean the same both beat a third that does not?"""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.sets.sugarcrepe import SUBSETS_PP as SUBSETS
from hfcomp.evaluation.benchmarks.readers.sets.sugarcrepe import rows_pp, with_photographs
from hfcomp.evaluation.protocols.caption_choice import TwoPositiveChoice
from hfcomp.evaluation.sources import Adapted, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

# The five files are the same, byte for byte, in the authors' repository, at github.com/Sri-Harsha/scpp, and on the Hub
# as Aman-J/SugarCrepe_pp at dea2a1b6f9e1069c609f676aa55ec61e9b65fb61.
FILES = RawFiles(
    required_files=tuple(f"{subset}.json" for subset in SUBSETS),
    read=rows_pp,
    layout="the five JSON files of github.com/Sri-Harsha/scpp (data/) and, for the image task, a folder val2017/",
    web="https://raw.githubusercontent.com/Sri-Harsha/scpp/c083bbf039a5ca215acaf25e7ee736d2ea6f3864/data",
)

SUGARCREPE_PP = Benchmark(
    name="sugarcrepe_pp",
    title="SugarCrepe++",
    suite=COMPOSITIONAL,
    protocol=TwoPositiveChoice(),
    data=(Adapted(FILES, with_photographs),),
    averages=(
        Average("macro of 5 subsets", tuple((subset,) for subset in SUBSETS)),
        Average("micro", (SUBSETS,), pooled=True),
        Average("REPLACE", (SUBSETS[:3],)),
        Average("SWAP", (SUBSETS[3:],)),
    ),
    paper="Dumpala et al. 2024, arXiv:2406.11171",
    licence="CC BY 4.0",
    obtain="Downloaded automatically, with COCO val2017 from the Hub; its text task needs no images.",
    version=2,
)
