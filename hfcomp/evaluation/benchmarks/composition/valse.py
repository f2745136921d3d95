"""VALSE (Parcalabescu et al. 2022): a caption against a foil that alters one linguistic phenomenon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.files import entries
from hfcomp.evaluation.benchmarks.readers.pools import COCO_TRAIN2014, COCO_VAL2014, COCO_VAL2017, SWIG, with_images_of
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice
from hfcomp.evaluation.sources import Adapted, Pool, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Average, Benchmark, BenchmarkData, Folders

COUNTING = ("counting-hard", "counting-small-quant", "counting-adversarial")
COREFERENCE = ("coreference-standard", "coreference-hard")
ACTIONS = ("action-replacement", "actant-swap")
INSTRUMENTS = ("existence", "plurals", *COUNTING, "relations", *ACTIONS, *COREFERENCE, "foil-it")
FEWEST_VOTES = 2
NOT_VALID = f"not valid: fewer than {FEWEST_VOTES} of 3 annotators chose only the caption"
KEYS = ("image_file", "caption", "foil", "mturk")

POOLS = (
    COCO_VAL2017,
    COCO_VAL2014,
    COCO_TRAIN2014,
    Pool("visual7w", obtain="Get Visual7W's images and pass their folder as --data visual7w=FOLDER."),
    SWIG,
    Pool("visdial_val2018", obtain="Get VisDial's val2018 images; pass the folder as --data visdial_val2018=FOLDER."),
)


def pool_of(file: str) -> str:
    """Returns the name of an image's pool, by its file name."""
    if Path(file).stem.isdigit():
        return COCO_VAL2017.name
    prefixes = {
        "COCO_val2014_": "val2014",
        "COCO_train2014_": "train2014",
        "v7w_": "visual7w",
        "VisualDialog_val2018_": "visdial_val2018",
    }
    return next((pool for prefix, pool in prefixes.items() if file.startswith(prefix)), "swig")


def photograph(file: str) -> str:
    """Returns an id that is equal for a COCO photograph in all releases; for other images, the file name."""
    stem = Path(file).stem
    # A photograph has different names in 2014 and 2017, and occurs in several instruments.
    return f"COCO {int(stem.split('_')[-1])}" if stem.isdigit() or file.startswith("COCO_") else file


def rows(folder: Path) -> list[dict[str, Any]]:
    return [
        {
            "subset": instrument,
            "item": name,
            "image": row["image_file"],
            "image_id": photograph(row["image_file"]),
            "caption": row["caption"],
            "negative_captions": [row["foil"]],
            # A foil that annotators also consider true is not a foil.
            "left_out": "" if row["mturk"]["caption"] >= FEWEST_VOTES else NOT_VALID,
        }
        for instrument in INSTRUMENTS
        for name, row in entries(folder / f"{instrument}.json", KEYS)
    ]


def with_photographs(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    return with_images_of(items, POOLS, [pool_of(file) for file in items.rows["image"][:]], folders, beside)


FILES = RawFiles(
    required_files=tuple(f"{instrument}.json" for instrument in INSTRUMENTS),
    read=rows,
    layout="the eleven JSON files of github.com/Heidelberg-NLP/VALSE (data/) and folders of images: "
    + ", ".join(pool.name for pool in POOLS),
    web="https://raw.githubusercontent.com/Heidelberg-NLP/VALSE/2152d90d4aecd11f7f74cf03420abcb63efff9c5/data",
)
EACH = tuple((name,) for name in INSTRUMENTS)
COLUMNS = (COUNTING, *(group for group in EACH if group[0] not in COUNTING))

VALSE = Benchmark(
    name="valse",
    title="VALSE",
    suite=COMPOSITIONAL,
    protocol=CaptionChoice(),
    data=(Adapted(FILES, with_photographs),),
    # Listed explicitly: if an instrument's images are missing, omit the average instead of using only the rest.
    averages=(
        Average("mean of 11 instruments", EACH),
        Average("mean of 9 columns (Counting is one)", COLUMNS),
        Average("pooled", EACH, pooled=True),
    ),
    paper="Parcalabescu et al. 2022, arXiv:2112.07566",
    license="MIT; each source of images its own",
    obtain="Its texts are downloaded automatically, COCO val2017 from the Hub. "
    + " ".join(p.obtain for p in POOLS[1:]),
    version=2,
)
