"""NegBench (Alhamoud et al. 2025): captions with negation, as a choice of four captions and as retrieval."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.files import csv_entries
from hfcomp.evaluation.benchmarks.readers.pools import COCO_VAL2017
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.protocols.retrieval import Retrieval
from hfcomp.evaluation.sources import Pool, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark

OPTIONS = ("caption_0", "caption_1", "caption_2", "caption_3")
ANSWER, KIND = "correct_answer", "correct_answer_template"


def question_rows(folder: Path, file: str) -> list[dict[str, Any]]:
    """Reads the items of NegBench's CSV file of multiple-choice questions.

    Only the file name of an image's path is used. The subset is the kind of question.
    """
    items = []
    for line, row in csv_entries(folder / file, (*OPTIONS, "image_path", ANSWER, KIND)):
        if row[ANSWER] not in map(str, range(len(OPTIONS))):
            raise ValueError(
                f"{folder / file}, line {line}, column {ANSWER!r}: found {row[ANSWER]!r}, expected the number of the "
                f"right caption, 0 to {len(OPTIONS) - 1}."
            )
        negatives = [row[option] for option in OPTIONS]
        texts = {"caption": negatives.pop(int(row[ANSWER])), "negative_captions": negatives}
        items.append({"subset": row[KIND], "item": line, "image": Path(row["image_path"]).name, **texts})
    return items


def listed_captions(folder: Path, file: str) -> list[dict[str, Any]]:
    """Reads the images of a CSV file, each with its captions as a list in JSON or Python syntax.

    Only the file name of an image's path is used.
    """
    from hfcomp.data.formats.tables import read_list

    items = []
    for line, row in csv_entries(folder / file, ("filepath", "captions")):
        texts, name = read_list(row["captions"]), Path(row["filepath"]).name
        if texts is None or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"{folder / file}, line {line}, column 'captions': found {row['captions'][:60]!r}, expected a list of "
                "captions such as ['a dog', 'a cat']."
            )
        items.append({"item": name, "image": name, "captions": texts})
    return items


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
        license="MIT (the repository); images of COCO and VOC, their own",
        obtain=f"Get the CSV files from {DRIVE}. {pool.obtain}",
        folder="negbench",
        averages=(Average("all questions", pooled=True),) if protocol == CaptionChoice() else (),
        in_suites=name != "retrieval_plain",  # only for comparison with the negated one
    )


NEGBENCH = (
    _benchmark("mcq_coco", "MCQ on COCO", "COCO_val_mcq_llama3.1_rephrased.csv"),
    _benchmark("mcq_voc", "MCQ on VOC", "VOC2007_mcq_llama3.1_rephrased.csv", VOC2007),
    _benchmark("retrieval", "negated retrieval", "COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv"),
    _benchmark("retrieval_plain", "plain retrieval", "COCO_val_retrieval.csv"),
)
