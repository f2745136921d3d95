"""A set of the user's own as a benchmark: retrieval, and the choice of the caption where rows have a negative."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hfcomp.evaluation.cells import is_missing
from hfcomp.evaluation.protocols.retrieval import PairsAndNegatives
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark, BenchmarkData, Data, Folders, Origin
from hfcomp.reading import may_be_hub_id

if TYPE_CHECKING:
    from datasets import Dataset

    from hfcomp.parsing.tokens import CaptionChoice


def is_place(name: str) -> bool:
    """Whether a text is an existing file or folder, or can only be a path or a Hub id."""
    from hfcomp.data.formats.tables import is_table  # slow to import, and whoever only lists benchmarks comes here

    return Path(name).exists() or is_table(name) or "/" in name


def own_benchmark(
    source: str | Path,
    *,
    split: str | None = None,
    config: str | None = None,
    column_names: Mapping[str, str] | None = None,
    name: str | None = None,
    title: str | None = None,
    caption_choice: CaptionChoice = "longest",
) -> Benchmark:
    """A set in the column contract, with `image` and `caption`, as a benchmark.

    Its metrics are recall@1 in both directions, where rows with one `image_id` or one caption are right for each
    other, and, of the rows that have `negative_captions`, the choice between the caption and the first of these. On
    the command line it is `--benchmarks FILE`.

    Args:
        source: as for [`hfcomp.data.load_training_set`]: a file, a folder or an id of the Hub.
        split: or parts of some, such as `test+validation`; by default `test`, or the only one that there is.
        config: the configuration of a set of the Hub.
        column_names: contract name to the set's own.
        name: in notes and on the command line; by default the source.
        title: in tables; by default the name of the file or folder.
        caption_choice: of the captions of a row: the longest, the first, or all, a row for each.

    Raises:
        ValueError: for a path that does not exist. What is wrong with rows shows when they are loaded.
    """
    source = str(source)
    if not may_be_hub_id(source) and not Path(source).exists():
        raise ValueError(f"{source}: no such file or folder.")
    return Benchmark(
        name=name or source,
        title=title or Path(source).stem,
        suite=COMPOSITIONAL,
        protocol=PairsAndNegatives(),
        data=(OwnData(source, split, config, column_names, caption_choice),),
        paper="a set of your own",
        license="that of the set",
        obtain=f"It is {source}.",
        in_suites=False,
    )


@dataclass(frozen=True)
class OwnData(Data):
    """Rows in the column contract; the attributes are those of [`own_benchmark`]."""

    is_own = True

    source: str
    split: str | None = None
    config: str | None = None
    column_names: Mapping[str, str] | None = None
    caption_choice: CaptionChoice = "longest"

    @property
    def layout(self) -> str:
        return f"{self.source} with the columns image and caption"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData:
        return self.remote(folders)

    def remote(self, folders: Folders) -> BenchmarkData:
        from datasets import List, Value

        from hfcomp.data.columns import COLUMNS, require_columns
        from hfcomp.data.image_ids import IMAGE_ID, photographs_or_rows, with_column
        from hfcomp.data.loading import contract_rows, undecoded
        from hfcomp.data.pair_table import NEGATIVES, choose_captions, column_of, texts_of
        from hfcomp.data.row_checks import place_of_row

        split = self.split or self._default_split()
        place, notes = f"{self.source} ({split})", []
        part = {"split": split, "config": self.config}
        rows = contract_rows(self._load(split), self.source, self.column_names, **part)
        require_columns(rows, ("image", "caption"), needed_by=f"evaluation: {place}")
        if not len(rows):
            raise ValueError(f"{place} has no rows.")
        try:
            rows = choose_captions(rows, self.caption_choice, notes.append)
        except ValueError as error:
            raise ValueError(f"{place}, {error}") from error
        # Messages name places in the user's own files, whose other columns are dropped next.
        every = rows
        # Images are read when they are encoded, not for the checks of texts and names.
        rows = undecoded(rows.select_columns([column for column in COLUMNS if column in rows.column_names]))
        _check_rows(rows, place, partial(place_of_row, every))
        # The metric of a user's own set is the choice between two texts, so only the first negative is used.
        negatives = [texts_of(texts)[:1] for texts in column_of(rows, NEGATIVES)]
        count = sum(map(len, negatives))
        notes.append(f"{len(rows):,} rows of {place}, {count:,} with a negative")
        rows = with_column(rows, IMAGE_ID, photographs_or_rows(rows), Value("string"))
        if count:
            rows = with_column(rows, NEGATIVES, negatives, List(Value("string")))
        return BenchmarkData(rows, Origin(self.source), notes=tuple(notes))

    def _load(self, split: str) -> Dataset:
        from hfcomp.data.sources import load_source

        try:
            return load_source(self.source, split=split, config=self.config)
        except Exception as error:
            # If the source exists, the loader's own message says more.
            if Path(self.source).exists():
                raise
            raise ValueError(f"{self.source}: no such file or folder; and as a dataset of the Hub: {error}") from error

    def _default_split(self) -> str:
        """`test` where there is one, else the only split; where there are others, the error of loading names them."""
        from datasets import get_dataset_split_names

        from hfcomp.data.formats.tables import literal_options, tables_of_images

        path = Path(self.source)
        # A single file has one split, which `datasets` calls train.
        if path.is_file():
            return "train"
        if tables := tables_of_images(path):
            return "test" if len(tables) > 1 else next(iter(tables))
        if (path / "state.json").is_file():
            return "test"  # rows without splits are those of any name
        try:
            saved = path / "dataset_dict.json"
            if saved.is_file():
                splits = json.loads(saved.read_text())["splits"]
            else:
                splits = get_dataset_split_names(self.source, **literal_options(self.source, self.config, {}))
        except Exception:  # loading reports the problem
            splits = []
        return splits[0] if len(splits) == 1 else "test"


def _check_rows(rows: Dataset, place: str, place_of: Callable[[int], str]) -> None:
    for row, text in enumerate(rows["caption"]):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"{place}, column 'caption', {place_of(row)}: expected a text, found {text!r}. Remove the row or "
                "give it a caption."
            )
    for row, cell in enumerate(rows["image"]):
        if is_missing(cell):
            raise ValueError(
                f"{place}, column 'image', {place_of(row)}: the image is missing: {_describe(cell)}. Remove the row "
                "or give it an image."
            )


def _describe(cell: object) -> str:
    path = cell.get("path") if isinstance(cell, dict) else cell
    return f"{path} does not exist" if path else "the cell is empty"
