"""Questions and captions in CSV files, an image a row, and pairs of images in JSON lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.entries import csv_entries, listed_entries

OPTIONS = ("caption_0", "caption_1", "caption_2", "caption_3")
ANSWER, KIND = "correct_answer", "correct_answer_template"


def question_rows(folder: Path, file: str) -> list[dict[str, Any]]:
    """The items of a CSV file of multiple-choice questions, as NegBench has them.

    Of the image's path only the file's name counts. The subset is the kind of question.

    Raises:
        ValueError: for a column that is missing, or an answer that is not the number of a caption.
    """
    found = []
    for line, row in csv_entries(folder / file, (*OPTIONS, "image_path", ANSWER, KIND)):
        if row[ANSWER] not in map(str, range(len(OPTIONS))):
            raise ValueError(
                f"{folder / file}, line {line}, column {ANSWER!r}: found {row[ANSWER]!r}, expected the number of the "
                f"right caption, 0 to {len(OPTIONS) - 1}."
            )
        negatives = [row[option] for option in OPTIONS]
        texts = {"caption": negatives.pop(int(row[ANSWER])), "negative_captions": negatives}
        found.append({"subset": row[KIND], "item": line, "image": Path(row["image_path"]).name, **texts})
    return found


def listed_captions(folder: Path, file: str) -> list[dict[str, Any]]:
    """The images of a CSV file, each with its captions as a list written in JSON or Python.

    Of the image's path only the file's name counts.

    Raises:
        ValueError: for a column that is missing, or a text that is not a list of texts.
    """
    from hfcomp.data.formats.tables import read_list  # imports datasets, which listing benchmarks need not

    found = []
    for line, row in csv_entries(folder / file, ("filepath", "captions")):
        texts, name = read_list(row["captions"]), Path(row["filepath"]).name
        if texts is None or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"{folder / file}, line {line}, column 'captions': found {row['captions'][:60]!r}, expected a list of "
                "captions such as ['a dog', 'a cat']."
            )
        found.append({"item": name, "image": name, "captions": texts})
    return found


def pairs(folder: Path, file: str) -> list[dict[str, Any]]:
    """The items of a JSON list of `[image, caption, other image, other caption]`.

    An image is a path or an address, of which the file's name counts.
    """
    return [
        {
            "item": place,
            "image": Path(entry["image"]).name,
            "caption": entry["caption"],
            "negative_image": Path(entry["other image"]).name,
            "negative_captions": [entry["other caption"]],
        }
        for place, entry in listed_entries(folder / file, ("image", "caption", "other image", "other caption"))
    ]
