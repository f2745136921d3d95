"""Score files of other systems: writes the list of pairs that need a score, and reads and checks the scores."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from hfcomp.checksums import file_hash
from hfcomp.data.urls import redact
from hfcomp.evaluation.benchmarks import benchmarks as known_benchmarks
from hfcomp.evaluation.benchmarks.own import is_place
from hfcomp.evaluation.cells import decoded
from hfcomp.evaluation.loaded import Loaded
from hfcomp.evaluation.pairs.items import PairList, PairScores, list_pairs
from hfcomp.evaluation.spec import Unavailable
from hfcomp.reading import nearest, parse_json
from hfcomp.reporting.format import count_text
from hfcomp.text_tables import open_table, plain_cell
from hfcomp.writing import replacing, write_bytes, write_csv, write_parquet

KEY = ("benchmark", "subset", "item", "image", "text")
"""Columns that identify a pair. `image` names an image column of the benchmark: `image` or `negative_image`."""
SCORE = "score"
ENDINGS = (".csv", ".jsonl", ".parquet")
MOST_PAIRS = 5_000_000
"""Limit of pairs for a benchmark that scores all images with all texts: 1,000 images with five captions each."""
_LIST = "hfcomp evaluate --write_pairs FILE lists the pairs that need a score."

_COLUMNS = ", ".join((*KEY, SCORE))
Pair = tuple[str, str, str, str]  # subset, item, image and text


class ScoreFile:
    """A file with a score for each pair of an image and a text, used like a model in an evaluation.

    Args:
        path: CSV, JSON lines or Parquet file with the columns `benchmark`, `subset`, `item`, `image`, `text` and
            `score`; other columns are ignored. Scores are finite numbers, higher if the text fits the image better.

    Raises:
        ValueError: If a column is missing, a score is not a finite number, or a pair is duplicated. The error names
            the row, counted from 0.
        OSError: If the file cannot be read.
    """

    most_pairs = MOST_PAIRS

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        table = _read(self.path)
        absent = [name for name in (*KEY, SCORE) if name not in table]
        if absent:
            raise ValueError(
                f"{path}: found the columns {', '.join(table)}, expected {_COLUMNS}; {', '.join(absent)} is missing. "
                f"{_LIST}"
            )
        scores = self._numbers(table[SCORE])
        self._scores: dict[str, dict[Pair, tuple[int, float]]] = {}
        duplicates: list[tuple[int, int]] = []
        for row, (benchmark, *pair) in enumerate(zip(*(table[name] for name in KEY), strict=True)):
            own = self._scores.setdefault(benchmark, {})
            first, _ = own.setdefault(tuple(pair), (row, scores[row]))
            if first != row:
                duplicates.append((row, first))
        if duplicates:
            row, first = duplicates[0]
            raise ValueError(
                f"{path}, row {row}: the same pair as in row {first}: {_format([table[name][row] for name in KEY])}. "
                f"Rows that repeat an earlier one: {len(duplicates):,}. Keep one row per pair."
            )
        self._weights = f"sha256:{file_hash(self.path)[:16]}"

    @property
    def facts(self) -> dict[str, str]:
        """The file's entry among the models in `results.json`."""
        return {"path": str(self.path), "weights": self._weights, "score": "read from a file"}

    def check(self, loaded: Sequence[Loaded]) -> list[str]:
        """Checks that the file matches the evaluated benchmarks, before any model scores them.

        Returns:
            One note for each benchmark in the file whose scores are not used.

        Raises:
            ValueError: If pairs have no score, a benchmark does not have some of the pairs, or a benchmark is unknown.
        """
        names, notes = [benchmark.benchmark.name for benchmark in loaded], []
        for name, own in self._scores.items():
            if name not in names and name not in known_benchmarks() and not is_place(name):
                # Rows are kept with the scores, so every message can name one.
                row = next(iter(own.values()))[0]
                raise ValueError(
                    f"{self.path}, row {row}: found the benchmark {name!r} ({count_text(len(own), 'row')}), "
                    f"expected one of {', '.join(names)}.{nearest(name, names)}"
                )
            if name not in names:
                notes.append(f"{self.path}: {count_text(len(own), 'score')} of {name} not used: it is not evaluated")
        # The scores are not needed yet, but reading them reports missing and unknown pairs.
        for benchmark in loaded:
            if benchmark.benchmark.name in self._scores:
                try:
                    self.score_pairs(list_pairs(benchmark.benchmark, benchmark.data, self.most_pairs))
                except Unavailable:  # the evaluation skips it later, with the reason
                    continue
        return notes

    def score_pairs(self, pairs: PairList, *, progress: bool = False) -> PairScores:
        """Returns the scores of a benchmark's pairs.

        Raises:
            Unavailable: If the file has no scores for the benchmark.
            ValueError: If the file lacks some of the benchmark's pairs or has other pairs.
        """
        name = pairs.benchmark.name
        own = self._scores.get(name)
        if own is None:
            raise Unavailable(f"{self.path} has no scores for it.", _LIST)
        # Names as a spreadsheet returns them, because the list protects names from being read as formulas.
        required = [tuple(map(plain_cell, pair)) for pair in pair_names(pairs)]
        missing = list(dict.fromkeys(pair for pair in required if pair not in own))
        if missing:
            raise ValueError(
                f"{self.path}: {len(missing):,} of {len(set(required)):,} pairs of {name} have no score. The first is "
                f"{_format([name, *missing[0]])}. {_LIST}"
            )
        # Scores for other pairs mean another split or version of the data, which must not go unnoticed.
        unknown = own.keys() - set(required)
        if unknown:
            pair = min(unknown, key=lambda names: own[names][0])
            raise ValueError(
                f"{self.path}, row {own[pair][0]}: {name} has no such pair: {_format([name, *pair])}. Rows without a "
                f"pair of {name}: {len(unknown):,}. {_LIST}"
            )
        return PairScores(np.array([own[pair][1] for pair in required], dtype=np.float64), len(own))

    def _numbers(self, column: Sequence[Any]) -> list[float]:
        scores = [_number(value) for value in column]
        wrong = [row for row, value in enumerate(scores) if not math.isfinite(value)]
        if wrong:
            raise ValueError(
                f"{self.path}, row {wrong[0]}: found the score {column[wrong[0]]!r}, expected a finite number. "
                f"Rows without one: {len(wrong):,}."
            )
        return scores


def pair_names(pairs: PairList) -> list[Pair]:
    """Returns the names of each pair in score files: subset, item, image and text."""
    subsets, items = pairs.items.rows["subset"][:], pairs.items.rows["item"][:]
    return [
        (subsets[place.row], items[place.row], place.column, pairs.texts[text])
        for place, text in zip(pairs.places, pairs.text, strict=True)
    ]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _format(names: Sequence[str]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in zip(KEY, names, strict=True))


def _read(path: Path) -> dict[str, list[Any]]:
    """Reads the columns of a file. Names of pairs are texts, without the prefix that protects spreadsheets."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{path}: expected a score file that ends with {', '.join(ENDINGS)}.")
    if ending == ".jsonl":
        table = _json_lines(path)
    elif ending == ".csv":
        table = _csv(path)
    else:
        try:
            table = pq.read_table(path).to_pydict()
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not Parquet, or damaged: {' '.join(str(error).split())}") from error
    return {
        name: [plain_cell(str(value)) for value in values] if name in KEY else values for name, values in table.items()
    }


def _csv(path: Path) -> dict[str, list[str]]:
    table = open_table(path)
    rows = [row for _, row in table.rows()]
    return {name: [row[place] for row in rows] for place, name in enumerate(table.columns)}


def _json_lines(path: Path) -> dict[str, list[Any]]:
    rows: list[dict[str, Any]] = []
    for line, content in enumerate(path.read_bytes().splitlines(), start=1):
        if not content.strip():
            continue
        try:
            row = parse_json(content)
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: not JSON: {error}.") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {line}: found a {type(row).__name__}, expected an object with {_COLUMNS}.")
        absent = [name for name in (*KEY, SCORE) if name not in row]
        if absent:
            raise ValueError(f"{path}, line {line}: {', '.join(absent)} is missing, expected {_COLUMNS}. {_LIST}")
        rows.append(row)
    return {name: [row[name] for row in rows] for name in (*KEY, SCORE)}


COLUMNS = (*KEY[:4], "image_id", "file", "text")


def parse_score_files(entries: Iterable[str]) -> dict[str, str]:
    """Parses entries `NAME=FILE` into files by name."""
    files: dict[str, str] = {}
    for text in entries:
        name, _, path = text.partition("=")
        if not name or not Path(path).is_file():
            raise ValueError(f"scores: found {text!r}, expected NAME=FILE with a file that exists.")
        if name in files:
            raise ValueError(f"scores: two files are called {name!r}. Give them different names.")
        files[name] = path
    return files


def write_pairs(path: str | Path, loaded: Iterable[Loaded], log: Callable[[str], None]) -> None:
    """Writes one row for each pair of an image and a text that the benchmarks need a score for.

    The columns are those of a [`ScoreFile`] without the score, plus `image_id` and `file`, the place of the image.
    Images without a file of their own, and parts of images, are written to a folder next to the list.

    Args:
        path: File whose name ends in `.csv`, `.jsonl` or `.parquet`; an existing one is replaced.
        loaded: Benchmarks with their data. Those that cannot be scored from pairs are left out.
    """
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"{path}: expected a file name that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.")
    tables = []
    for benchmark in loaded:
        name = benchmark.benchmark.name
        try:
            pairs = list_pairs(benchmark.benchmark, benchmark.data, MOST_PAIRS)
        except Unavailable as error:
            log(f"{name}: left out: {error.reason}")
            continue
        table = _table(pairs, path.with_name(f"{path.stem}_images"))
        parts = f"{count_text(len(pairs.keys), 'image')} with {count_text(len(pairs.texts), 'text')}"
        log(f"{name}: {count_text(len(table), 'pair')}: {parts}")
        tables.append(table)
    if not tables:
        raise ValueError("none of the benchmarks can be scored from pairs of an image and a text. Name another one.")
    _write(path, pd.concat(tables, ignore_index=True))
    log(f"written: {path}")


def _table(pairs: PairList, folder: Path) -> pd.DataFrame:
    files = np.array(list(_files(pairs, folder)), dtype=object)
    ids = pairs.items.rows["image_id"][:]
    table = pd.DataFrame(pair_names(pairs), columns=KEY[1:])
    table.insert(0, KEY[0], pairs.benchmark.name)
    table["image_id"] = [ids[place.row] for place in pairs.places]
    table["file"] = files[pairs.image]
    # An item may list a text twice, which is one pair.
    return table[list(COLUMNS)].drop_duplicates(list(KEY), ignore_index=True)


def _files(pairs: PairList, folder: Path) -> Iterator[str]:
    """Yields the file of each distinct image; an image without a file is first written to the folder."""
    for number, key in enumerate(pairs.keys):
        cell = pairs.cell(number)
        place = cell.get("path") if isinstance(cell, dict) and cell.get("bytes") is None else cell
        if isinstance(place, str):
            yield redact(place)  # without the signature of a URL
            continue
        content, ending = _content(cell, str(pairs.first[number]))
        # Named by content, so an image that several pairs or benchmarks share is written once.
        target = folder / f"{key.hex()}{ending}"
        write_bytes(target, content)
        yield str(target)


def _content(cell: Any, where: str) -> tuple[bytes, str]:
    """Returns the original bytes of an image with a file name; encodes other images and parts of images as PNG."""
    if isinstance(cell, dict):
        ending = Path(cell.get("path") or "").suffix
        if ending:
            return cell["bytes"], ending
    stream = io.BytesIO()
    decoded(cell, where).save(stream, format="PNG")
    return stream.getvalue(), ".png"


def _write(path: Path, table: pd.DataFrame) -> None:
    ending = path.suffix.lower()
    if ending == ".parquet":
        write_parquet(path, table)
    elif ending == ".csv":
        write_csv(path, table)
    else:
        with replacing(path) as part:
            table.to_json(part, orient="records", lines=True, force_ascii=False)
