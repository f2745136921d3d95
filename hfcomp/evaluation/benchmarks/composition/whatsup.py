"""What'sUp (Kamath et al. 2023): left or right, on or under, in front or behind?"""

from __future__ import annotations

from hfcomp.evaluation.benchmarks.readers.sets.whatsup import COCO_SPATIAL, CONTROLLED_IMAGES, GQA_SPATIAL
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice, JointChoice
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

DRIVE = "https://drive.google.com/drive/u/3/folders/164q6X9hrvP-QYpi3ioSnfMuyHpG5oRkZ"


def _benchmark(name: str, title: str, form: RawFiles, protocol: CaptionChoice, macro: str) -> Benchmark:
    return Benchmark(
        name=f"whatsup_{name}",
        title=f"What'sUp {title}",
        suite=COMPOSITIONAL,
        protocol=protocol,
        data=(form,),
        averages=(Average(macro),),
        paper="Kamath et al. 2023, arXiv:2310.19785",
        licence="MIT (the repository); images of COCO and Visual Genome, their own",
        obtain=f"Get its files from {DRIVE}. {form.pool.obtain if form.pool else ''}".strip(),
        folder="whatsup",
    )


# the means are those of the paper's Table 1
MACRO = "macro of one and two objects"
WHATSUP = (
    _benchmark("controlled", "controlled images", CONTROLLED_IMAGES, JointChoice(), "macro of A and B"),
    _benchmark("coco", "COCO spatial", COCO_SPATIAL, CaptionChoice(), MACRO),
    _benchmark("gqa", "GQA spatial", GQA_SPATIAL, CaptionChoice(), MACRO),
)
