"""A user's own dataset as a benchmark: retrieval, and caption choice for rows with a negative."""

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
    """Whether a name is an existing file or folder, or can only be a path or a Hub id."""
    from hfcomp.data.formats.tables import is_table  # slow to import, and listing benchmarks calls this function

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
    """Makes a benchmark from a dataset in the column contract, with `image` and `caption`.

    Its metrics are recall@1 in both directions, where rows with the same `image_id` or caption are right for each
    other, and, for rows with `negative_captions`, the choice between the caption and the first negative. On the
    command line it is `--benchmarks FILE`.

    Args:
        source: File, folder or Hub id, as for [`hfcomp.data.load_training_set`].
        split: Split, or parts of several, such as `test+validation`; by default `test`, or the only one.
        config: Configuration of a Hub dataset.
        column_names: Contract name to the dataset's column name.
        name: Name in notes and on the command line; by default the source.
        title: Title in tables; by default the name of the file or folder.
        caption_choice: Captions to use if a row has several: the longest, the first, or all, one row each.

    Raises:
        ValueError: If the path does not exist. Errors in rows are raised when they are loaded.
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
        paper="your own dataset",
        license="the dataset's own",
        obtain=f"It is {source}.",
        in_suites=False,
    )


@dataclass(frozen=True)
class OwnData(Data):
    """Rows in the column contract; attributes are those of [`own_benchmark`]."""

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
        # Messages name places in the user's files, whose other columns are dropped next.
        every = rows
        # Images are read only when encoded, not for the checks of texts and names.
        rows = undecoded(rows.select_columns([column for column in COLUMNS if column in rows.column_names]))
        _check_rows(rows, place, partial(place_of_row, every))
        # The metric for a user's own dataset is the choice between two texts, so only the first negative is used.
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
            # If the source exists, the loader's own error is more specific.
            if Path(self.source).exists():
                raise
            raise ValueError(
                f"{self.source}: no such file or folder, and loading it as a Hub dataset failed: {error}"
            ) from error

    def _default_split(self) -> str:
        """Returns `test` if it exists, else the only split. With several others, the loading error names them."""
        from datasets import get_dataset_split_names

        from hfcomp.data.formats.tables import literal_options, tables_of_images

        path = Path(self.source)
        # A single file has one split, which `datasets` calls train.
        if path.is_file():
            return "train"
        if tables := tables_of_images(path):
            return "test" if len(tables) > 1 else next(iter(tables))
        if (path / "state.json").is_file():
            return "test"  # rows saved without splits match any name
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
                f"{place}, column 'caption', {place_of(row)}: expected a string, found {text!r}. Remove the row or "
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
