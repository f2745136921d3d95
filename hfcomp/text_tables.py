"""Reads CSV and TSV tables: checks every row against the lines of the file and never guesses the type of a cell.

`safe_cell` makes cells that hfcomp writes safe: no spreadsheet runs them as a formula (OWASP, CSV injection).

A reader that trusts every quote would treat a title that begins with a quote as quoted text, which then swallows the
rows up to the next quote. The TSV files of open_clip and img2dataset have such titles, because they are written
without quoting.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import shlex
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from hfcomp.reading import FileError, csv_rows, short_repr

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a vertical bar"}
"""Possible column separators, with their names in messages."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_STATED = re.compile(r"sep=(.)[\r\n]+")
_FILE_NAME = re.compile(r"\S*\.(\w{2,5})")
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


class TextTable:
    """A table in a text file, which is opened again for each reading.

    Args:
        opener: Function that opens the file for reading bytes.
        name: File name for messages; its extension determines the expected delimiter.
        delimiter: Column separator; defaults to the separator of the first line.
        encoding: File encoding; defaults to UTF-8, or to UTF-16 if the file begins with its byte order mark.
        looked_at: Number of lines to inspect before deciding whether a table with tabs uses quoting; defaults to all.

    Attributes:
        columns: Column names from the first line; a column without a name becomes `Unnamed: 2`, as in pandas.
        delimiter: Column separator.
        is_quoted: Whether quotes enclose texts; otherwise they are ordinary characters. Known once rows are read.
        notes: Sentences on how the file differs from a plain CSV or TSV file; complete once rows are read.

    Raises:
        FileError: If the first line cannot be read, or names a column twice.
    """

    def __init__(
        self,
        opener: Callable[[], BinaryIO],
        name: str,
        *,
        delimiter: str | None = None,
        encoding: str | None = None,
        looked_at: int | None = None,
    ) -> None:
        self.opener, self.name, self.looked_at = opener, name, looked_at
        self.notes: list[str] = []
        self.encoding = encoding or self._marked_encoding()
        self.is_quoted, self._states_delimiter = True, False
        expected = "\t" if name.lower().removesuffix(".gz").endswith(".tsv") else ","
        stated = _STATED.fullmatch(next(self._lines(), ""))
        self._states_delimiter = stated is not None
        head = [*islice((line for line in self._lines() if line.strip("\r\n")), 2)]
        self.delimiter = delimiter or (stated[1] if stated else _delimiter(head, expected))
        if delimiter is None and self.delimiter != expected:
            actual = DELIMITERS.get(self.delimiter, repr(self.delimiter))
            self.notes.append(
                f"{name}: the first line separates columns by {actual} instead of {DELIMITERS[expected]}, and so are "
                "all lines read."
            )
        self._is_settled = self.delimiter != "\t"
        self.columns = self._column_names(next(self._quoted_rows(width=None), (0, []))[1])

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yields the rows, each with the number of its last line; skips blank lines."""
        self.settle_quoting()
        rows = self._quoted_rows(len(self.columns)) if self.is_quoted else self._unquoted_rows(len(self.columns))
        next(rows, None)  # the column names
        return rows

    def settle_quoting(self) -> None:
        """Determines whether quotes enclose texts; reading rows does this first.

        Quotes enclose texts, unless reading them this way fails in a table with tabs and every line has all cells if
        quotes are ordinary characters.
        """
        if self._is_settled:
            return
        # Tries both readings, which costs a pass. The standard reading is kept if it works, and given up only if the
        # other reading explains every line. If neither fits, reading raises the error of the standard one.
        failure = _failure(self._quoted_rows(len(self.columns), self.looked_at))
        if failure is not None and self._fits_unquoted():  # otherwise reading raises the failure
            self.is_quoted = False
            first = next(self._unquoted_rows(width=None), (0, []))[1]
            self.columns = self._column_names(first)
            reason = str(failure).removeprefix(f"{self.name}, ").partition(". ")[0]
            self.notes.append(
                f"{self.name}: quotes are read as ordinary characters, as written by open_clip and img2dataset, "
                f"because they do not enclose texts ({reason})."
            )
        self._is_settled = True

    def _quoted_rows(self, width: int | None, limit: int | None = None) -> Iterator[tuple[int, list[str]]]:
        held: list[str] = []
        for line, row in csv_rows(_record_lines(self._lines(), held, limit), self.name, delimiter=self.delimiter):
            lines, held[:] = held[:], []
            if not row:
                continue
            if width is not None:
                self._check(row, line, width)
                if len(lines) > 1 and self._swallows(lines, row):
                    raise FileError(
                        f"{self.name}, line {line - len(lines) + 1}: the quote that opens here closes in line {line}, "
                        "but the lines in between look like separate rows. Close it in its line, double it "
                        '(""), or remove it.'
                    )
            yield line, row

    def _unquoted_rows(self, width: int | None) -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(self._lines(), start=1):
            text = line.rstrip("\r\n")
            if text:
                row = text.split(self.delimiter)
                if width is not None:
                    self._check(row, number, width)
                yield number, row

    def _check(self, row: list[str], line: int, width: int) -> None:
        if len(row) != width:
            raise FileError(
                f"{self.name}, line {line}: found {len(row)} fields, {short_repr(row)}; expected {width}, as in the "
                f"first line. A text that contains {DELIMITERS.get(self.delimiter, repr(self.delimiter))} needs "
                "quotes around it."
            )

    def _fits_unquoted(self) -> bool:
        """Whether each line has all cells if quotes are ordinary, and most cells with quotes are not enclosed."""
        number: Counter[bool] = Counter()
        width = None
        for line in _record_lines(self._lines(), [], self.looked_at):
            cells = line.rstrip("\r\n").split(self.delimiter)
            if cells == [""]:
                continue
            width = width or len(cells)
            if len(cells) != width:
                return False
            if '"' in line:
                number.update(cell[0] == cell[-1] == '"' and len(cell) > 1 for cell in cells if '"' in cell)
        return number[False] > number[True]

    def _swallows(self, lines: list[str], row: list[str]) -> bool:
        """Whether a line inside a row looks like a row: all cells, and a file or URL in the same column as the row.

        Tabs are rare in texts, so in a table with tabs but without files or URLs, having all cells is enough.
        """
        # A quoted caption may contain a line break, so a long cell is not an error by itself. A lost quote shows in a
        # line inside the cell that has the shape of the table: the same number of cells, and a file name in the same
        # column.
        parts = [line.strip('\r\n"').split(self.delimiter) for line in lines[1:]]
        fitting = [part for part in parts if len(part) == len(row) > 1]
        kinds = [_kind(cell) for cell in row]
        if self.delimiter == "\t" and not any(kinds):
            return bool(fitting)
        return any(kind and kind == _kind(cell) for part in fitting for kind, cell in zip(kinds, part, strict=True))

    def _column_names(self, names: list[str]) -> list[str]:
        twice = next((name for name, number in Counter(map(str.strip, names)).items() if number > 1 and name), None)
        if twice is not None:
            raise FileError(f"{self.name}, line 1: duplicate column {twice!r}. Rename or remove one of them.")
        return [name.strip() or f"Unnamed: {place}" for place, name in enumerate(names)]

    def _marked_encoding(self) -> str:
        with self._open_file() as file:
            return "utf-16" if file.read(2) in _UTF_16 else "utf-8-sig"

    @contextmanager
    def _open_file(self) -> Iterator[BinaryIO]:
        try:
            with self.opener() as file:
                yield file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(f"{self.name} cannot be decompressed: {error}. Download it again.") from error

    def _lines(self) -> Iterator[str]:
        # A first line that states the delimiter, as written by Excel, becomes a blank line to keep the line numbers
        # right.
        with self._open_file() as raw, io.TextIOWrapper(raw, encoding=self.encoding, newline="") as file:
            try:
                if self._states_delimiter:
                    next(file)
                    yield "\n"
                yield from file
            except UnicodeDecodeError:
                raise FileError(self._undecodable()) from None

    def _undecodable(self) -> str:
        # A stream decoder reports only the position in its buffer, so the whole file is read again, which is
        # acceptable for an error. utf-8-sig would not count the byte order mark.
        encoding = "utf-8" if self.encoding == "utf-8-sig" else self.encoding
        with self._open_file() as file:
            content = file.read()
        try:
            content.decode(encoding)
        except UnicodeDecodeError as error:
            place = error.start
        before = content[:place].decode(encoding)
        whole_lines = before.splitlines(keepends=True)[: before.count("\n")]
        row = sum(map(bool, csv.reader(whole_lines, delimiter=getattr(self, "delimiter", ",")))) - 1
        start, end = content.rfind(b"\n", 0, place) + 1, content.find(b"\n", place)
        text = content[start : end if end >= 0 else None].strip()[:60]
        path = Path(self.name)
        name, copy = shlex.quote(self.name), shlex.quote(str(path.with_name(f"utf8-{path.name}")))
        return (
            f"{self.name}, line {before.count(chr(10)) + 1}: {text!r} is not {encoding.upper()}: "
            f"{'the first line' if row < 0 else f'row {row}'} has the byte 0x{content[place]:02X} at offset {place:,} "
            f"of the file. Save the file as UTF-8. For a Western European file, "
            f"`iconv -f CP1252 -t UTF-8 {name} > {copy}` makes a copy."
        )


def open_table(path: Path, *, looked_at: int | None = None) -> TextTable:
    """Opens a local CSV or TSV file, which may be compressed (`.gz`); see [`TextTable`]."""
    opener: Any = partial(gzip.open, path, "rb") if path.suffix == ".gz" else partial(path.open, "rb")
    return TextTable(opener, str(path), looked_at=looked_at)


def _delimiter(head: Sequence[str], expected: str) -> str:
    """The delimiter of the first two lines: the expected one, unless it leaves only one column and another fits."""
    for delimiter in (expected, *DELIMITERS):
        try:
            names = next(csv.reader(head[:1], delimiter=delimiter, strict=True), [])
        except csv.Error:
            continue
        if len(names) > 1 and (delimiter == expected or all(delimiter in line for line in head)):
            return delimiter
    return expected


def _record_lines(lines: Iterable[str], held: list[str], limit: int | None = None) -> Iterator[str]:
    # The csv module reads lines as it needs them. `_swallows` compares a row with the lines that it was read from.
    for number, line in enumerate(lines):
        if number == limit:
            return
        held.append(line)
        yield line


def _failure(rows: Iterator[Any]) -> FileError | None:
    try:
        for _ in rows:
            pass
    except FileError as error:
        return error
    return None


def _kind(cell: str) -> str | None:
    """The file extension of a cell, `URL` for a URL, or None."""
    cell = cell.strip()
    name = _FILE_NAME.fullmatch(cell)
    return name[1].lower() if name else "URL" if "://" in cell and " " not in cell else None


def safe_cell(value: Any) -> Any:
    """Makes a value safe for a CSV file: prefixes an apostrophe to a text that begins like a formula, except numbers.

    A text that already begins with apostrophes followed by a formula gets one more, so removing one apostrophe from
    every such text restores the originals.
    """
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def plain_cell(text: str) -> str:
    """Removes the apostrophes before a text that begins like a formula, to compare texts."""
    return text.lstrip("'") if text[:1] == "'" and _FORMULA.match(text) else text
