"""Builders of `datasets` for tables in text files whose cells are texts as written, by [`hfcomp.text_tables`].

`datasets` reads them by pandas, which guesses: "null", "NA" and "None" are missing there, 1984 and 007 are numbers,
and a quote at the beginning of a title swallows rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import datasets
import pyarrow as pa
from datasets.packaged_modules.csv.csv import Csv
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from datasets.utils.file_utils import xopen

from hfcomp.reading import FileError
from hfcomp.text_tables import TextTable

OPTIONS = ("sep", "delimiter", "encoding", "features", "chunksize")
"""Options of `datasets`' reader that are followed; with others, as a card may state them, pandas reads."""
_ROWS = 10_000  # at a time
_LOOKED_AT = 10_000  # lines of a stream


def table_of_texts(columns: list[str], rows: list[list[str]]) -> pa.Table:
    """Rows as Arrow has them; an empty cell is missing."""
    cells = zip(*rows, strict=True) if rows else [()] * len(columns)
    texts = [pa.array([cell or None for cell in column], pa.string()) for column in cells]
    return pa.Table.from_arrays(texts, columns)


def tables_of_texts(table: TextTable) -> Iterator[pa.Table]:
    """The rows of a text table, some thousands at a time.

    Raises:
        FileError: for rows that do not fit, naming file and line.
    """
    rows: list[list[str]] = []
    for _, row in table.rows():
        rows.append(row)
        if len(rows) == _ROWS:
            yield table_of_texts(table.columns, rows)
            rows = []
    if rows:
        yield table_of_texts(table.columns, rows)


class TextTables(Csv):
    """CSV and TSV files; `info.description` of the rows holds the notes about them."""

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        dl_manager.download_config.extract_on_the_fly = True
        files = dl_manager.download(self.config.data_files)
        limit = _LOOKED_AT if dl_manager.is_streaming else None
        first, splits = None, []
        for split, extracted in dl_manager.extract(files).items():
            tables = []
            for name, place in zip(files[split], extracted, strict=True):
                for file in dl_manager.iter_files(place):
                    opener = partial(xopen, file, "rb", download_config=dl_manager.download_config)
                    table = self._open(opener, name, limit)
                    first = first or table
                    _check_columns(table, first)
                    tables.append(table)
            splits.append(datasets.SplitGenerator(name=split, gen_kwargs={"tables": tables}))
        if first is not None and self.info.features is None:
            self.info.features = datasets.Features({name: datasets.Value("string") for name in first.columns})
        return splits

    def _open(self, opener: Any, name: str, limit: int | None) -> TextTable:
        config, default = self.config, type(self.config)()
        stated = config.sep if config.sep not in (default.sep, "\t") else None
        table = TextTable(opener, name, delimiter=stated, encoding=config.encoding, looked_at=limit)
        if limit is None:
            table.settle_quoting()
        notes = [note for note in table.notes if note not in self.info.description]
        self.info.description = "\n".join(filter(None, [self.info.description, *notes]))
        return table

    def _generate_shards(self, tables: list[TextTable]) -> Iterator[str]:
        yield from (table.name for table in tables)

    def _generate_tables(self, tables: list[TextTable]) -> Iterator[tuple[Any, pa.Table]]:
        for number, table in enumerate(tables):
            for part, found in enumerate(tables_of_texts(table)):
                yield (number, part), self._cast_table(found)


class FoldersWithTables(ImageFolder):
    """Folders of images, whose `metadata.csv` is read as any other table."""

    def _read_metadata(self, metadata_file: str, metadata_ext: str = "") -> Iterator[pa.Table]:
        if metadata_ext != ".csv" or self.config.filters is not None:
            yield from super()._read_metadata(metadata_file, metadata_ext=metadata_ext)
            return
        yield from tables_of_texts(TextTable(partial(xopen, metadata_file, "rb"), metadata_file))


def _check_columns(table: TextTable, first: TextTable) -> None:
    if set(table.columns) != set(first.columns):
        raise FileError(
            f"{table.name} has the columns {', '.join(table.columns)}, but {first.name} has "
            f"{', '.join(first.columns)}. Give the tables of one set the same columns."
        )
