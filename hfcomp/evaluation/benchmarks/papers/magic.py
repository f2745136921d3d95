"""MAGIC (CLEAR GLASS): finds images by the name of a concept, on four levels of abstraction.

The authors' dataset is not released; `hfcomp build magic` builds one. `MAGIC` searches for an image by the names of
its concepts, `MAGIC_CAPTIONS` by its generalized caption, `MAGIC_BY_CONCEPT` by names of concepts not trained on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hfcomp.evaluation.benchmarks.readers.files import entries
from hfcomp.evaluation.protocols.level_choice import GROUPS, LEVELS, LevelChoice
from hfcomp.evaluation.sources import RawFiles, require
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark, BenchmarkData, Data, Folders, Origin, Unavailable


class _Unreleased(Data):
    def remote(self, folders: Folders) -> BenchmarkData:
        raise Unavailable("MAGIC is not released.", "")


@dataclass(frozen=True)
class BuiltLevels(_Unreleased):
    """The test rows of a set of `hfcomp build magic`; `caption` is their generalized one, or the first of several.

    Attributes:
        texts: Text columns by which an image is searched for.
        view: Configuration of the dataset.
    """

    texts: tuple[str, ...] = LEVELS
    view: str = "levels"

    @property
    def layout(self) -> str:
        return f"a dataset built by `hfcomp build magic`, of which the test rows of {self.view} are read"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        from hfcomp.data.built_sets.views import read_views

        if read_views(folder) is None:
            return None
        from hfcomp.data.loading import load_training_set, undecoded
        from hfcomp.data.pair_table import choose_captions

        rows = undecoded(load_training_set(str(folder), split="test", config=self.view))
        if "caption" in rows.column_names:  # the generalized caption takes its name
            rows = rows.remove_columns("caption")
        rows = choose_captions(rows.rename_column("generalized_caption", "caption"), "first", log=lambda line: None)
        columns = [*dict.fromkeys(("image", "image_id", *self.texts, "caption", *GROUPS))]
        return BenchmarkData(rows.select_columns(columns), Origin(f"{folder}, test rows of {self.view}"))


@dataclass(frozen=True)
class OwnLevels(_Unreleased):
    """Parquet files in the column contract, as you write them.

    Attributes:
        texts: Text columns by which an image is searched for.
        optional: Columns that are read if they exist.
    """

    texts: tuple[str, ...] = LEVELS
    optional: tuple[str, ...] = ("caption", *GROUPS)

    @property
    def layout(self) -> str:
        columns = ", ".join(("image", "image_id", *self.texts))
        return f"Parquet files with the columns {columns}, if known {', '.join(self.optional)}"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        files = sorted(folder.rglob("*.parquet"))
        if not files:
            return None
        from datasets import load_dataset

        from hfcomp.data.formats.tables import literal_files
        from hfcomp.data.loading import undecoded

        rows = undecoded(load_dataset("parquet", data_files={"train": literal_files(files)}, split="train"))
        columns = ("image", "image_id", *self.texts)
        require(rows, columns, str(folder))
        known = [name for name in self.optional if name in rows.column_names]
        return BenchmarkData(rows.select_columns([*columns, *known]), Origin(str(folder)))


def concepts(folder: Path) -> list[dict[str, Any]]:
    """Reads the test images of every concept in the authors' JSON; an image may occur under several concepts.

    The caption is the first generalized one, otherwise the first original one, as in the released evaluation.
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


_JSON = RawFiles(
    required_files=("magic.json", "images"),
    read=concepts,
    layout="the authors' JSON as magic.json and a folder images/",
)
MAGIC = Benchmark(
    name="magic",
    title="MAGIC levels",
    suite=COMPOSITIONAL,
    protocol=LevelChoice(),
    data=(BuiltLevels(), OwnLevels(), _JSON),
    paper="Suissa et al., CLEAR GLASS",
    license="not stated; not released",
    obtain="It is not released. Build one with `hfcomp build magic` and pass its folder as --data magic=FOLDER.",
    version=2,
)
MAGIC_CAPTIONS = replace(
    MAGIC,
    name="magic_captions",
    title="MAGIC captions",
    protocol=LevelChoice(texts=("caption",)),
    data=(BuiltLevels(texts=("caption",)), OwnLevels(texts=("caption",), optional=GROUPS), _JSON),
    paper="Suissa et al., CLEAR GLASS, Table 3, column captions",
    folder=MAGIC.name,
    in_suites=False,
    version=1,
)
MAGIC_BY_CONCEPT = replace(
    MAGIC,
    name="magic_by_concept",
    title="MAGIC levels of unseen concepts",
    data=(BuiltLevels(view="levels_by_concept"),),
    folder=MAGIC.name,
    in_suites=False,
    version=1,
)
