"""ARO's two sets of Visual Genome (Yuksekgonul et al. 2023): who does what to whom, and which thing is how?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.entries import entries
from hfcomp.evaluation.cells import Crop, MappedImages
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import Adapted, HubData, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, BenchmarkData, Folders

PAPER = "Yuksekgonul et al. 2023, arXiv:2210.01936"
# The list is in the notebook of github.com/mertyg/vision-language-models-are-bows (MIT) that makes the paper's number;
# the package next to it does not have it.
SYMMETRIC = frozenset(Path(__file__).with_name("aro_symmetric_relations.txt").read_text(encoding="utf-8").splitlines())
SYMMETRIC_REASON = "relation that the authors leave out as symmetric"
FEWEST = 25
RARE_REASON = f"pair of attributes with fewer than {FEWEST} items, which the authors leave out"
NO_AREA = "box without an area"


def symmetric(subsets: list[str]) -> list[str]:
    """For each item of VG-Relation, why it is left out; empty where it is not."""
    return [SYMMETRIC_REASON if name in SYMMETRIC else "" for name in subsets]


def rare(subsets: list[str]) -> list[str]:
    """For each item of VG-Attribution, why it is left out; empty where it is not."""
    number = Counter(subsets)
    return [RARE_REASON if number[name] < FEWEST else "" for name in subsets]


def rows(folder: Path, *, file: str, subset: str) -> list[dict[str, Any]]:
    """The items of one of the authors' two JSON files, as the copy on the Hub has them."""
    keys = ("image_path", "true_caption", "false_caption", subset, *(f"bbox_{side}" for side in "xywh"))
    return [
        {
            "image": str(folder / "images" / row["image_path"]),
            "caption": row["true_caption"],
            "negative_captions": row["false_caption"],
            "subset": row[subset],
            "box": {side: row[f"bbox_{side}"] for side in "xywh"},
        }
        for _, row in entries(folder / file, keys)
    ]


def boxed(
    items: BenchmarkData, folders: Folders, beside: Path | None, *, left_out: Callable[[list[str]], list[str]]
) -> BenchmarkData:
    """Items with images cropped to the box around both objects, as the authors do; the files have whole images."""
    boxes = [tuple(int(box[side]) for side in "xywh") for box in items.rows["box"]]
    subsets = [value if isinstance(value, str) else "_".join(value) for value in items.rows["subset"]]
    reasons = zip(boxes, left_out(subsets), strict=True)
    columns = {
        "subset": subsets,
        "negative_captions": [[text] for text in items.rows["negative_captions"]],
        "left_out": [NO_AREA if min(width, height) < 1 else reason for (_, _, width, height), reason in reasons],
    }
    cut = items.rows.remove_columns(["box", "subset", "negative_captions"])
    for name, values in columns.items():
        cut = cut.add_column(name, values)
    edges = [(x, y, x + width, y + height) for x, y, width, height in boxes]
    images = MappedImages(items.rows["image"], lambda cell, row: Crop(cell, edges[row]))
    return replace(items, rows=cut, images={"image": images})


def _benchmark(
    part: str, subset: str, macro: str, left_out: Callable[[list[str]], list[str]], revision: str
) -> Benchmark:
    file = f"visual_genome_{part}.json"
    columns = {
        "image": "image",
        "caption": "true_caption",
        "negative_captions": "false_caption",
        "subset": subset,
        "box": "bbox",
    }
    forms = (
        HubData(f"mteb/ARO-Visual-{part.capitalize()}", columns, revision=revision),
        RawFiles(
            (file, "images"),
            partial(rows, file=file, subset=subset),
            f"{file} and images/ as the authors' script downloads them",
        ),
    )
    return Benchmark(
        name=f"aro_{part}",
        title=f"ARO VG-{part.capitalize()}",
        suite=COMPOSITIONAL,
        protocol=CaptionChoice(),
        data=tuple(Adapted(form, partial(boxed, left_out=left_out)) for form in forms),
        averages=(Average(macro), Average("micro", pooled=True)),
        paper=PAPER,
        licence="MIT according to MTEB's copy; images of Visual Genome, CC BY 4.0",
        obtain=f"It comes from the Hub (mteb/ARO-Visual-{part.capitalize()}).",
    )


# the revisions are those that MTEB reads
ARO_RELATION = _benchmark(
    "relation", "relation_name", "macro of relations", symmetric, "53c1115ab5871ab33b09d5bb8856236d46bdaf2d"
)
ARO_ATTRIBUTION = _benchmark(
    "attribution", "attributes", "macro of pairs", rare, "25fe9b460426ff67cdb0608a737c94f8f49a901e"
)
