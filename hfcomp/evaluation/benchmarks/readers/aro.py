"""ARO's sets, as the authors have them and as MTEB does: which items count, in which box, and against what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.entries import entries
from hfcomp.evaluation.benchmarks.readers.visual_genome import BOX, box_of, cropped
from hfcomp.evaluation.spec import BenchmarkData, Folders

if TYPE_CHECKING:
    from datasets import Dataset

# The list is in the notebook of github.com/mertyg/vision-language-models-are-bows (MIT) that makes the paper's number;
# the package next to it does not have it.
SYMMETRIC = frozenset(Path(__file__).with_name("aro_symmetric_relations.txt").read_text(encoding="utf-8").splitlines())
SYMMETRIC_REASON = "relation that the authors leave out as symmetric"
FEWEST = 25
RARE_REASON = f"pair of attributes with fewer than {FEWEST} items, which the authors leave out"

SHUFFLED = ("hard_text_1", "hard_text_2", "hard_text_3", "hard_text_4")


def in_one_list(rows: Dataset) -> Dataset:
    """Rows of a set of word order with their four shuffled captions in one list."""
    lists = [list(texts) for texts in zip(*(rows[name] for name in SHUFFLED), strict=True)]
    return rows.remove_columns(list(SHUFFLED)).add_column("negative_captions", lists)


def symmetric(subsets: list[str]) -> list[str]:
    """For each item of VG-Relation, why it is left out; empty where it is not."""
    return [SYMMETRIC_REASON if name in SYMMETRIC else "" for name in subsets]


def rare(subsets: list[str]) -> list[str]:
    """For each item of VG-Attribution, why it is left out; empty where it is not."""
    number = Counter(subsets)
    return [RARE_REASON if number[name] < FEWEST else "" for name in subsets]


def rows(folder: Path, *, file: str, subset: str) -> list[dict[str, Any]]:
    """The items of one of the authors' two JSON files, as the copy on the Hub has them."""
    return [
        {
            "image": str(folder / "images" / row["image_path"]),
            "caption": row["true_caption"],
            "negative_captions": row["false_caption"],
            "subset": row[subset],
            "box": box_of(row),
        }
        for _, row in entries(folder / file, ("image_path", "true_caption", "false_caption", subset, *BOX))
    ]


def boxed(
    items: BenchmarkData, folders: Folders, beside: Path | None, *, left_out: Callable[[list[str]], list[str]]
) -> BenchmarkData:
    """Items with images cropped to the box around both objects, as the authors do; the files have whole images."""
    subsets = [value if isinstance(value, str) else "_".join(value) for value in items.rows["subset"]]
    columns = {
        "subset": subsets,
        "negative_captions": [[text] for text in items.rows["negative_captions"]],
        "left_out": left_out(subsets),
    }
    rows = items.rows.remove_columns(["subset", "negative_captions"])
    for name, values in columns.items():
        rows = rows.add_column(name, values)
    return cropped(replace(items, rows=rows))
