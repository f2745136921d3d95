"""ECCV Caption (Chun et al. 2022): COCO retrieval in which every caption and image that is right counts as right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from hfcomp.evaluation.benchmarks.readers.coco import COCO_VAL2014
from hfcomp.evaluation.benchmarks.readers.sets import eccv
from hfcomp.evaluation.protocols.retrieval import RepairedRetrieval
from hfcomp.evaluation.sources import RawFiles
from hfcomp.evaluation.spec import GENERAL, Benchmark

FILES = (eccv.GALLERY, eccv.IMAGES_OF, eccv.CAPTIONS_OF)
WEB = "https://github.com/naver-ai/eccv-caption/tree/b51f56cfd1a5f530a04c8f54eba880d302ccd7a5/eccv_caption/data"


def _form(file: str, texts: Callable[[Path], dict[str, str]]) -> RawFiles:
    layout = f"{', '.join(FILES)} of {WEB}, {file} and a folder val2014/"
    return RawFiles((*FILES, file), partial(eccv.rows, texts=texts), layout, COCO_VAL2014)


ECCV_CAPTION = Benchmark(
    name="eccv_caption",
    title="ECCV Caption",
    suite=GENERAL,
    protocol=RepairedRetrieval(),
    data=(_form(eccv.COCO, eccv.coco_texts), _form(eccv.KARPATHY, eccv.karpathy_texts)),
    paper="Chun et al. 2022, arXiv:2204.03359",
    licence="MIT; parts of Crisscrossed Captions, Apache-2.0; captions of COCO, CC BY 4.0",
    obtain="Get the three files of the authors' repository, COCO's annotations_trainval2014.zip (or Karpathy's "
    f"dataset_coco.json), and put them into one folder. {COCO_VAL2014.obtain}",
)
