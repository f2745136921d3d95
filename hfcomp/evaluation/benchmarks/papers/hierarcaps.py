"""HierarCaps (Alper and Averbuch-Elor 2024): captions of an image from the general to the specific, in two ways.

Like its authors, `HIERARCAPS` tests whether they are retrieved in that order. Like CLEAR GLASS, `HIERARCAPS_LEVELS`
tests on each level whether their image is found among others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.pools import COCO_VAL2017
from hfcomp.evaluation.cells import Fitted, map_cells
from hfcomp.evaluation.protocols import level_choice as level
from hfcomp.evaluation.protocols.retrieval import Hierarchy
from hfcomp.evaluation.sources import Adapted, RawFiles
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark, BenchmarkData, Folders
from hfcomp.metrics.hierarchy import LEVELS
from hfcomp.text_tables import open_table

FILE = "hierarcaps_test.csv"
COMMIT = "ba22b8914db10973e38d2c03f08bb4dce7ba118e"
SIDE = 256  # pixels of the authors' own images


def rows(folder: Path) -> list[dict[str, Any]]:
    """Reads the items of the authors' table. `image` is the file name in COCO's val2017, which contains all images."""
    items = []
    table = open_table(folder / FILE)
    for number, (_, cells) in enumerate(table.rows()):
        row = dict(zip(table.columns, cells, strict=True))
        captions = [text.strip() for text in row["captions"].split("=>")]
        if len(captions) != LEVELS:
            raise ValueError(
                f"{folder / FILE}, row {number}, column 'captions': found {len(captions)} texts between '=>', "
                f"expected {LEVELS}: {row['captions']!r}."
            )
        # The URL of a val2014 image ends in the photograph's val2017 name.
        image = row["image_url"].rpartition("_")[2]
        items.append({"item": row["id"], "image": image, "image_id": image, "captions": captions})
    return items


def rows_beside_images(folder: Path) -> list[dict[str, Any]]:
    """Reads the same items with paths of the authors' own, smaller copies of the images."""
    return [{**row, "image": str(folder / "test_imgs" / f"COCO_val2014_{row['image']}")} for row in rows(folder)]


def fit_images(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """Fits COCO's whole images into a white square of 256 pixels, as in the authors' own copies."""
    images = map_cells(items.images["image"], lambda cell, row: Fitted(cell, SIDE))
    return replace(items, images={"image": images})


def as_levels(items: BenchmarkData, folders: Folders, beside: Path | None) -> BenchmarkData:
    """Puts each text into its own column: level 1 is the most specific, level 4 the most general."""
    texts, levels = items.rows["captions"][:], items.rows.remove_columns("captions")
    for place, name in enumerate(reversed(level.LEVELS)):
        levels = levels.add_column(name, [row[place] for row in texts])
    return replace(items, rows=levels)


HIERARCAPS = Benchmark(
    name="hierarcaps",
    title="HierarCaps",
    suite=COMPOSITIONAL,
    protocol=Hierarchy(),
    data=(
        RawFiles(
            required_files=(FILE, "test_imgs"),
            read=rows_beside_images,
            layout=f"{FILE} (data/) and test_imgs/ (assets/) of github.com/TAU-VAILab/hierarcaps",
        ),
        Adapted(
            RawFiles(
                required_files=(FILE,),
                read=rows,
                layout=f"{FILE} of github.com/TAU-VAILab/hierarcaps and a folder val2017/ with COCO's images",
                pool=COCO_VAL2017,
                web=f"https://raw.githubusercontent.com/TAU-VAILab/hierarcaps/{COMMIT}/data",
            ),
            fit_images,
        ),
    ),
    paper="Alper and Averbuch-Elor 2024, arXiv:2407.08521",
    license="not stated; images of COCO",
    obtain="Downloaded automatically, with COCO val2017 from the Hub.",
    version=2,
)

HIERARCAPS_LEVELS = Benchmark(
    name="hierarcaps_levels",
    title="HierarCaps levels",
    suite=COMPOSITIONAL,
    protocol=level.LevelChoice(),
    data=tuple(Adapted(form, as_levels) for form in HIERARCAPS.data),
    paper=f"{HIERARCAPS.paper}; protocol of Suissa et al., CLEAR GLASS, Table 3",
    license=HIERARCAPS.license,
    obtain=HIERARCAPS.obtain,
    folder=HIERARCAPS.name,
    in_suites=False,
    version=2,
)
