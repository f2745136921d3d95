"""CREPE (Ma et al. 2023): choose the caption of a Visual Genome region among hard negatives."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.files import csv_entries, member
from hfcomp.evaluation.benchmarks.readers.pools import VISUAL_GENOME, crop_to_boxes
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import Adapted, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, Data

NEGATIVES = ("atom", "swap", "negate")
COMPLEXITIES = tuple(range(4, 13))
"""Numbers of atoms in a caption; more atoms are harder."""
TRAINED_ON = {"cc12m": "CC12M", "yfcc": "YFCC15M", "laion": "LAION-400M"}
"""Training sets that define which compounds are seen: CREPE's key for each set, and its usual name."""
FOLDERS = ("prod_hard_negatives", "syst_hard_negatives")
BOX = ("x", "y", "width", "height")


def productivity(web: str) -> tuple[Data, ...]:
    """Returns captions of 4 to 12 atoms, with a subset per kind of negatives and number of atoms."""
    files = {
        f"{kind} {number}": (f"{kind}/prod_vg_hard_negs_{kind}_complexity_{number}.csv", "hard_negs")
        for kind in NEGATIVES
        for number in COMPLEXITIES
    }
    return _data_formats(FOLDERS[0], files, web)


def systematicity(web: str, trained_on: str) -> tuple[Data, ...]:
    """Returns captions whose pairs of atoms occur, or do not occur, in a training set.

    There is a subset for each of these two cases and each kind of negatives.
    """
    files = {
        f"{split} {kind}": (f"syst_vg_hard_negs_{split}_compounds_in_{trained_on}.csv", f"valid_hard_negs_{kind}")
        for split in ("seen", "unseen")
        for kind in ("atom", "comp", "combined")
    }
    return _data_formats(FOLDERS[1], files, web)


def _data_formats(folder: str, files: Mapping[str, tuple[str, str]], web: str) -> tuple[Data, ...]:
    pool, archive = VISUAL_GENOME, f"{folder}.zip"
    layout = f"{{}} of github.com/RAIVNLab/CREPE (data/) and {pool.name}/ with Visual Genome's images"
    return (
        Adapted(
            RawFiles((folder,), partial(rows, inside=folder, files=files), layout.format(folder), pool), crop_to_boxes
        ),
        Adapted(
            RawFiles((archive,), partial(rows, inside=archive, files=files), layout.format(archive), pool, web),
            crop_to_boxes,
        ),
    )


def rows(folder: Path, *, inside: str, files: Mapping[str, tuple[str, str]]) -> list[dict[str, Any]]:
    from hfcomp.data.formats.tables import read_list

    items = []
    for subset, (file, column) in files.items():
        # The file is in an unpacked folder or in the authors' archive.
        place = folder / inside / file if (folder / inside).is_dir() else member(folder / inside, file)
        for line, row in csv_entries(place, ("image_id", "caption", *BOX, column)):
            negatives, box = read_list(row[column]), [_parse_int(row[side]) for side in BOX]
            if negatives is None or not all(isinstance(text, str) for text in negatives) or None in box:
                raise ValueError(
                    f"{place}, line {line}: found {', '.join(row[side] for side in BOX)} and {row[column][:60]!r}, "
                    f"expected numbers in {', '.join(BOX)} and a list of strings in {column!r}."
                )
            image = f"{row['image_id']}.jpg"
            texts = {"caption": row["caption"], "negative_captions": negatives}
            items.append(
                {"subset": subset, "item": line, "image": image, **texts, "box": dict(zip("xywh", box, strict=True))}
            )
    return items


def _parse_int(text: str) -> int | None:
    try:
        return int(float(text))
    except (ValueError, OverflowError):  # infinity overflows
        return None


WEB = "https://raw.githubusercontent.com/RAIVNLab/CREPE/1fa81c425f442396fe304f170c8eb6dc0747c814/data"
BY_NEGATIVES = tuple(Average(kind, (tuple(f"{kind} {number}" for number in COMPLEXITIES),)) for kind in NEGATIVES)
TASKS = (
    ("productivity", "productivity", productivity(WEB), BY_NEGATIVES),
    *(
        (f"systematicity_{key}", f"systematicity {trained_on}", systematicity(WEB, key), ())
        for key, trained_on in TRAINED_ON.items()
    ),
)

CREPE = tuple(
    Benchmark(
        name=f"crepe_{name}",
        title=f"CREPE {title}",
        suite=COMPOSITIONAL,
        protocol=CaptionChoice(),
        data=data,
        averages=averages,
        paper="Ma et al. 2023, arXiv:2212.07796",
        license="not stated; images of Visual Genome, CC BY 4.0",
        obtain=f"Its texts are downloaded automatically. {VISUAL_GENOME.obtain}",
        in_suites=False,
        folder="crepe",
    )
    for name, title, data, averages in TASKS
)
