"""Tables in text files, CSV and TSV: every row is compared with the lines of the file, and no cell is guessed.

Cells that hfcomp writes are texts that no spreadsheet runs as a formula (OWASP, CSV injection): `safe_cell`.

A reader that believes every quote takes a title that begins with one for a quoted text, which then swallows the rows
up to the next quote. open_clip's and img2dataset's TSV files have such titles, as they are written without quoting.
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

from hfcomp.reading import FileError, csv_rows, shortened

DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a vertical bar"}
"""What columns may be separated by, with a name for messages."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_STATED = re.compile(r"sep=(.)[\r\n]+")
_FILE_NAME = re.compile(r"\S*\.(\w{2,5})")
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


class TextTable:
    """A table in a text file, opened anew by each reading.

    Args:
        opener: opens the file for reading bytes.
        name: file name for messages; its ending decides which delimiter is expected.
        delimiter: column separator; by default the one of the first line.
        encoding: file encoding; by default UTF-8, or UTF-16 if the file begins with its mark.
        looked_at: number of lines after which the quotes of a table with tabs count as known; all by default.

    Attributes:
        columns: names, from the first line; a column without one is `Unnamed: 2`, as in pandas.
        delimiter: between columns.
        is_quoted: whether quotes enclose texts; else they are characters as others. Known when rows are read.
        notes: what differs from a plain CSV or TSV file, a sentence each; complete when rows are read.

    Raises:
        FileError: for a file whose first line cannot be read, or names a column twice.
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
            there = DELIMITERS.get(self.delimiter, repr(self.delimiter))
            self.notes.append(
                f"{name}: columns are separated by {there}, not by {DELIMITERS[expected]}, as in its first line."
            )
        self._is_settled = self.delimiter != "\t"
        self.columns = self._named(next(self._quoted(width=None), (0, []))[1])

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows, each with the number of its last line; blank lines are none."""
        self.settle_quoting()
        rows = self._quoted(len(self.columns)) if self.is_quoted else self._unquoted(len(self.columns))
        next(rows, None)  # the names
        return rows

    def settle_quoting(self) -> None:
        """Finds out, as reading does first, whether quotes enclose texts.

        They do, unless they do not fit in a table with tabs whose lines have all cells without them.
        """
        if self._is_settled:
            return
        # The reading is found by trial, which costs a pass: the standard reading is kept if it works at all, and given
        # up only if the other one explains every line. A file that fits neither way raises the error of the standard
        # one.
        failure = _failure(self._quoted(len(self.columns), self.looked_at))
        if failure is not None and self._fits_unquoted():  # else reading raises it
            self.is_quoted = False
            first = next(self._unquoted(width=None), (0, []))[1]
            self.columns = self._named(first)
            reason = str(failure).removeprefix(f"{self.name}, ").partition(". ")[0]
            self.notes.append(
                f"{self.name}: its quotes are read as characters of the texts, as open_clip and img2dataset write "
                f"them; they do not enclose texts ({reason})."
            )
        self._is_settled = True

    def _quoted(self, width: int | None, limit: int | None = None) -> Iterator[tuple[int, list[str]]]:
        held: list[str] = []
        for line, row in csv_rows(_recorded(self._lines(), held, limit), self.name, delimiter=self.delimiter):
            lines, held[:] = held[:], []
            if not row:
                continue
            if width is not None:
                self._check(row, line, width)
                if len(lines) > 1 and self._swallows(lines, row):
                    raise FileError(
                        f"{self.name}, line {line - len(lines) + 1}: the quote that opens here closes in line {line}, "
                        "and the lines between look like rows of their own. Close it in its line, double it "
                        '(""), or remove it.'
                    )
            yield line, row

    def _unquoted(self, width: int | None) -> Iterator[tuple[int, list[str]]]:
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
                f"{self.name}, line {line}: found {len(row)} fields, {shortened(row)}; expected {width}, as in the "
                f"first line. A text with {DELIMITERS.get(self.delimiter, repr(self.delimiter))} needs quotes around "
                "it."
            )

    def _fits_unquoted(self) -> bool:
        """Whether each line has all cells if quotes are characters, and most cells with quotes are not enclosed."""
        number: Counter[bool] = Counter()
        width = None
        for line in _recorded(self._lines(), [], self.looked_at):
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
        """Whether a line in the middle of a row looks like a row: all cells, and a file or URL where the row has one.

        Tabs are rare in texts: in a table with tabs but no files or URLs, all cells are enough.
        """
        # A caption with a line break is legal in quotes, so a long cell by itself is not an error. A lost quote shows
        # in a line inside the cell with the shape of the table: the same number of cells, and a file name where the
        # row has one.
        parts = [line.strip('\r\n"').split(self.delimiter) for line in lines[1:]]
        fitting = [part for part in parts if len(part) == len(row) > 1]
        kinds = [_kind(cell) for cell in row]
        if self.delimiter == "\t" and not any(kinds):
            return bool(fitting)
        return any(kind and kind == _kind(cell) for part in fitting for kind, cell in zip(kinds, part, strict=True))

    def _named(self, names: list[str]) -> list[str]:
        twice = next((name for name, number in Counter(map(str.strip, names)).items() if number > 1 and name), None)
        if twice is not None:
            raise FileError(f"{self.name}, line 1: the column {twice!r} is named twice. Rename or remove one of them.")
        return [name.strip() or f"Unnamed: {place}" for place, name in enumerate(names)]

    def _marked_encoding(self) -> str:
        with self._opened() as file:
            return "utf-16" if file.read(2) in _UTF_16 else "utf-8-sig"

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with self.opener() as file:
                yield file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FileError(f"{self.name} cannot be decompressed: {error}. Fetch it again.") from error

    def _lines(self) -> Iterator[str]:
        # A first line that states the delimiter, as Excel writes it, becomes a blank line, so the following line
        # numbers stay right.
        with self._opened() as raw, io.TextIOWrapper(raw, encoding=self.encoding, newline="") as file:
            try:
                if self._states_delimiter:
                    next(file)
                    yield "\n"
                yield from file
            except UnicodeDecodeError:
                raise FileError(self._undecodable()) from None

    def _undecodable(self) -> str:
        # The decoder of a stream reports only the place in its buffer. So the whole file is read again, which is
        # acceptable for an error. utf-8-sig would not count the mark.
        encoding = "utf-8" if self.encoding == "utf-8-sig" else self.encoding
        with self._opened() as file:
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
            f"of the file. Save the file as UTF-8; of a Western European one, "
            f"`iconv -f CP1252 -t UTF-8 {name} > {copy}` makes a copy."
        )


def open_table(path: Path, *, looked_at: int | None = None) -> TextTable:
    """A local CSV or TSV file, also compressed (`.gz`); see [`TextTable`]."""
    opener: Any = partial(gzip.open, path, "rb") if path.suffix == ".gz" else partial(path.open, "rb")
    return TextTable(opener, str(path), looked_at=looked_at)


def _delimiter(head: Sequence[str], expected: str) -> str:
    """What separates the names in the first line, and is in the second: what is expected, unless that is one name."""
    for delimiter in (expected, *DELIMITERS):
        try:
            names = next(csv.reader(head[:1], delimiter=delimiter, strict=True), [])
        except csv.Error:
            continue
        if len(names) > 1 and (delimiter == expected or all(delimiter in line for line in head)):
            return delimiter
    return expected


def _recorded(lines: Iterable[str], held: list[str], limit: int | None = None) -> Iterator[str]:
    # csv reads lines as it needs them. The lines that went into a row are compared with it, see `_swallows`.
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
    """What makes a cell recognizable as a file or URL: the ending of its name."""
    cell = cell.strip()
    name = _FILE_NAME.fullmatch(cell)
    return name[1].lower() if name else "URL" if "://" in cell and " " not in cell else None


def safe_cell(value: Any) -> Any:
    """A value of a CSV file: an apostrophe stands before a text that begins like a formula, which is not a number.

    A text that begins with apostrophes and goes on like a formula gets one more, so that taking one away from every
    such text gives the originals.
    """
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def plain_cell(text: str) -> str:
    """A text without the apostrophes that it may have before what begins like a formula, to compare texts by."""
    return text.lstrip("'") if text[:1] == "'" and _FORMULA.match(text) else text
