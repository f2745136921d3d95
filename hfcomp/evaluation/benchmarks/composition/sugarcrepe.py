"""SugarCrepe (Hsieh et al. 2023): a COCO caption against a fluent false one."""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.coco import COCO_VAL2017
from hfcomp.evaluation.benchmarks.readers.sugarcrepe import ADD, REPLACE, SUBSETS, SWAP, rows
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

SUGARCREPE = Benchmark(
    name="sugarcrepe",
    title="SugarCrepe",
    suite=COMPOSITIONAL,
    protocol=CaptionChoice(),
    data=(
        RawFiles(
            required_files=tuple(f"{subset}.json" for subset in SUBSETS),
            read=rows,
            layout="the seven JSON files of github.com/RAIVNLab/sugar-crepe and a folder val2017/ with COCO's images",
            pool=COCO_VAL2017,
            web="https://raw.githubusercontent.com/RAIVNLab/sugar-crepe/0047054b243992f0fad63d6f64f7544862daf846/data",
        ),
    ),
    averages=(
        Average("macro of 7 subsets", tuple((subset,) for subset in SUBSETS)),
        Average("macro of 3 groups", (ADD, REPLACE, SWAP)),
        Average("micro", (SUBSETS,), pooled=True),
        Average("REPLACE", (REPLACE,)),
        Average("SWAP", (SWAP,)),
        Average("ADD", (ADD,)),
    ),
    paper="Hsieh et al. 2023, arXiv:2306.14610",
    licence="MIT; captions of COCO, CC BY 4.0",
    obtain="Downloaded automatically, with COCO val2017 from the Hub.",
)
