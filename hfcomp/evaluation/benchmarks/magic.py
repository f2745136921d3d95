"""MAGIC (CLEAR GLASS): the name of a concept, on four levels of abstraction, and images. It is not released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import load_dataset

from hfcomp.data.loading import undecoded
from hfcomp.evaluation.benchmarks.entries import entries
from hfcomp.evaluation.protocols.level_choice import GROUPS, LEVELS, LevelChoice
from hfcomp.evaluation.sources import RawFiles, require
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark, Folders, Items, Origin, Unavailable

OPTIONAL = ("caption", *GROUPS)


class OwnLevels:
    """Parquet files in the column contract, as the data set's own builder or you write them.

    Attributes:
        layout: in words.
    """

    layout = f"Parquet files with the columns image, image_id, {', '.join(LEVELS)}, if known {', '.join(OPTIONAL)}"

    def local(self, folder: Path, folders: Folders) -> Items | None:
        """The items, when the folder holds Parquet files; all of them are read."""
        files = sorted(map(str, folder.rglob("*.parquet")))
        if not files:
            return None
        rows = undecoded(load_dataset("parquet", data_files=files, split="train"))
        columns = ("image", "image_id", *LEVELS)
        require(rows, columns, str(folder))
        known = [name for name in OPTIONAL if name in rows.column_names]
        return Items(rows.select_columns([*columns, *known]), Origin(str(folder)))

    def remote(self, folders: Folders) -> Items:
        """Nowhere.

        Raises:
            Unavailable: always.
        """
        raise Unavailable("MAGIC is not released.", "")


def concepts(folder: Path) -> list[dict[str, Any]]:
    """The test images of every concept of the authors' JSON; an image may be there under several.

    Its caption is its first generalised one, else its first original one, as in the released evaluation.
    """
    return [
        {
            "item": f"{concept['concept']}/{image['image']}",
            "image": str(folder / "images" / image["image"]),
            "image_id": image["image"],
            **{level: image[level.replace("_", "")] for level in LEVELS},
            "caption": next(iter([*image.get("new_captions", ()), *image.get("old_captions", ())]), None),
            "group": concept["concept"],
            "hard_negative_groups": concept.get("hard_negative", []),
        }
        for _, concept in entries(folder / "magic.json", ("concept", "test_images"))
        for image in concept["test_images"]
    ]


MAGIC = Benchmark(
    name="magic",
    title="MAGIC levels",
    suite=COMPOSITIONAL,
    protocol=LevelChoice(),
    data=(
        OwnLevels(),
        RawFiles(
            marks=("magic.json", "images"),
            read=concepts,
            layout="the authors' JSON as magic.json and a folder images/",
        ),
    ),
    paper="Suissa et al., CLEAR GLASS",
    licence="not stated; not released",
    obtain="It is not released. Pass a folder of your own as --data magic=FOLDER.",
    version=2,
)
