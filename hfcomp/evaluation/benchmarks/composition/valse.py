"""VALSE (Parcalabescu et al. 2022): a caption against a foil that alters one linguistic phenomenon."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.valse import COUNTING, INSTRUMENTS, POOLS, rows, with_photographs
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import Adapted, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

FILES = RawFiles(
    required_files=tuple(f"{instrument}.json" for instrument in INSTRUMENTS),
    read=rows,
    layout="the eleven JSON files of github.com/Heidelberg-NLP/VALSE (data/) and folders of images: "
    + ", ".join(pool.name for pool in POOLS),
    web="https://raw.githubusercontent.com/Heidelberg-NLP/VALSE/2152d90d4aecd11f7f74cf03420abcb63efff9c5/data",
)
EACH = tuple((name,) for name in INSTRUMENTS)
COLUMNS = (COUNTING, *(group for group in EACH if group[0] not in COUNTING))

VALSE = Benchmark(
    name="valse",
    title="VALSE",
    suite=COMPOSITIONAL,
    protocol=CaptionChoice(),
    data=(Adapted(FILES, with_photographs),),
    # named one by one: an average is left out, not taken over the rest, where an instrument's images are missing
    averages=(
        Average("mean of 11 instruments", EACH),
        Average("mean of 9 columns (Counting is one)", COLUMNS),
        Average("pooled", EACH, pooled=True),
    ),
    paper="Parcalabescu et al. 2022, arXiv:2112.07566",
    licence="MIT; each source of images its own",
    obtain="Its texts come by themselves, COCO val2017 from the Hub. " + " ".join(p.obtain for p in POOLS[1:]),
    version=2,
)
