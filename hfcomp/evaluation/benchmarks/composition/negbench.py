"""NegBench (Alhamoud et al. 2025): what is not in the image, as a choice of four captions and as retrieval."""

from __future__ import annotations

from functools import partial

from hfcomp.evaluation.benchmarks.readers.choices import listed_captions, question_rows
from hfcomp.evaluation.benchmarks.readers.coco import COCO_VAL2017
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import Pool, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

DRIVE = "https://drive.google.com/drive/folders/1kSEq0mkV1t1T8GuOAM65iz_iAA7e5gxB"
VOC2007 = Pool("voc2007", obtain="Get VOCtest_06-Nov-2007.tar and pass its JPEGImages as --data voc2007=FOLDER.")


def _benchmark(name: str, title: str, file: str, pool: Pool = COCO_VAL2017) -> Benchmark:
    reader, protocol = (question_rows, CaptionChoice()) if "_mcq_" in file else (listed_captions, Retrieval())
    return Benchmark(
        name=f"negbench_{name}",
        title=f"NegBench {title}",
        suite=COMPOSITIONAL,
        protocol=protocol,
        data=(RawFiles((file,), partial(reader, file=file), f"{file} and a folder {pool.name}/ with images", pool),),
        paper="Alhamoud et al. 2025, arXiv:2501.09425",
        licence="MIT (the repository); images of COCO and VOC, their own",
        obtain=f"Get the CSV files from {DRIVE}. {pool.obtain}",
        folder="negbench",
        averages=(Average("all questions", pooled=True),) if protocol == CaptionChoice() else (),
        in_suites=name != "retrieval_plain",  # to compare the other one with
    )


NEGBENCH = (
    _benchmark("mcq_coco", "MCQ on COCO", "COCO_val_mcq_llama3.1_rephrased.csv"),
    _benchmark("mcq_voc", "MCQ on VOC", "VOC2007_mcq_llama3.1_rephrased.csv", VOC2007),
    _benchmark("retrieval", "negated retrieval", "COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv"),
    _benchmark("retrieval_plain", "plain retrieval", "COCO_val_retrieval.csv"),
)
