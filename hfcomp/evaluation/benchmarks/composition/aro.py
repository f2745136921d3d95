"""ARO (Yuksekgonul et al. 2023): relations between objects, their attributes, and the order of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.readers.files import entries
from hfcomp.evaluation.benchmarks.readers.pools import BOX, box_of, crop_to_boxes
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import Adapted, HubData, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, BenchmarkData, Folders, with_columns

if TYPE_CHECKING:
    from datasets import Dataset

# The list is in the notebook of github.com/mertyg/vision-language-models-are-bows (MIT) that computes the paper's
# number. The package next to the notebook does not have it.
SYMMETRIC = frozenset(Path(__file__).with_name("aro_symmetric_relations.txt").read_text(encoding="utf-8").splitlines())
SYMMETRIC_REASON = "relation that the authors leave out as symmetric"
FEWEST = 25
RARE_REASON = f"pair of attributes with fewer than {FEWEST} items, which the authors leave out"

SHUFFLED = ("hard_text_1", "hard_text_2", "hard_text_3", "hard_text_4")


def collect_shuffled(rows: Dataset) -> Dataset:
    """Collects the four shuffled captions of each word order row in one list."""
    lists = [list(texts) for texts in zip(*(rows[name] for name in SHUFFLED), strict=True)]
    return with_columns(rows, {"negative_captions": lists}, drop=SHUFFLED)


def symmetric(subsets: list[str]) -> list[str]:
    """Returns the reason why each item of VG-Relation is left out, or an empty text."""
    return [SYMMETRIC_REASON if name in SYMMETRIC else "" for name in subsets]


def rare(subsets: list[str]) -> list[str]:
    """Returns the reason why each item of VG-Attribution is left out, or an empty text."""
    number = Counter(subsets)
    return [RARE_REASON if number[name] < FEWEST else "" for name in subsets]


def rows(folder: Path, *, file: str, subset: str) -> list[dict[str, Any]]:
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


def crop_items(
    items: BenchmarkData, folders: Folders, beside: Path | None, *, left_out: Callable[[list[str]], list[str]]
) -> BenchmarkData:
    """Crops the images, which are whole in the files, to the box around both objects, as the authors do."""
    # VG-Attribution names a pair of attributes, VG-Relation a single relation.
    subsets = [value if isinstance(value, str) else "_".join(value) for value in items.rows["subset"]]
    columns = {
        "subset": subsets,
        "negative_captions": [[text] for text in items.rows["negative_captions"]],
        "left_out": left_out(subsets),
    }
    return crop_to_boxes(replace(items, rows=with_columns(items.rows, columns)))


PAPER = "Yuksekgonul et al. 2023, arXiv:2210.01936"


def _benchmark(
    part: str, subset: str, macro: str, left_out: Callable[[list[str]], list[str]], revision: str
) -> Benchmark:
    file, repo = f"visual_genome_{part}.json", f"mteb/ARO-Visual-{part.capitalize()}"
    columns = {"image": "image", "caption": "true_caption", "negative_captions": "false_caption", "subset": subset}
    read, layout = partial(rows, file=file, subset=subset), f"{file} and images/ as the authors' script downloads them"
    forms = (HubData(repo, {**columns, "box": "bbox"}, revision=revision), RawFiles((file, "images"), read, layout))
    return Benchmark(
        name=f"aro_{part}",
        title=f"ARO VG-{part.capitalize()}",
        suite=COMPOSITIONAL,
        protocol=CaptionChoice(),
        data=tuple(Adapted(form, partial(crop_items, left_out=left_out)) for form in forms),
        averages=(Average(macro), Average("micro", pooled=True)),
        paper=PAPER,
        license="MIT according to MTEB's copy; images of Visual Genome, CC BY 4.0",
        obtain=f"It comes from the Hub ({repo}).",
    )


# MTEB reads these revisions.
RELATION_AT, ATTRIBUTION_AT = "53c1115ab5871ab33b09d5bb8856236d46bdaf2d", "25fe9b460426ff67cdb0608a737c94f8f49a901e"
ARO_RELATION = _benchmark("relation", "relation_name", "macro of relations", symmetric, RELATION_AT)
ARO_ATTRIBUTION = _benchmark("attribution", "attributes", "macro of pairs", rare, ATTRIBUTION_AT)


COLUMNS = {"image": "images", "caption": "correct_caption", **{column: column for column in SHUFFLED}}


def _word_order(source: str, repo: str, revision: str, images: str) -> Benchmark:
    return Benchmark(
        name=f"aro_{source.lower()}_order",
        title=f"ARO {source}-Order",
        suite=COMPOSITIONAL,
        protocol=CaptionChoice(),
        # The authors shuffle while loading, with spaCy, nltk and the process's random generators, so their negatives
        # differ on every machine. The copy contains one draw.
        data=(HubData(repo, COLUMNS, reshape=collect_shuffled, revision=revision),),
        paper=PAPER,
        license=f"MIT according to MTEB's copy; {images}",
        obtain=f"It comes from the Hub ({repo}).",
    )


# MTEB reads these revisions.
COCO_AT, FLICKR_AT = "53c20afc02a87fed8c0245dde2e00f054da4b861", "e5d7f3502345b2c398a6645b4d09b44e650287bf"
TERMS = "images of Flickr30k, research and education only"
ARO_ORDER = (
    _word_order("COCO", "mteb/ARO-COCO-order", COCO_AT, "captions of COCO, CC BY 4.0"),
    _word_order("Flickr", "mteb/ARO-Flickr-Order", FLICKR_AT, TERMS),
)
