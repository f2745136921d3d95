"""The list of pairs that need a score, for systems that are scored elsewhere."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hfcomp.data.urls import shown
from hfcomp.evaluation.encoding.cells import Crop, Fitted
from hfcomp.evaluation.encoding.content import decoded
from hfcomp.evaluation.evaluator import Loaded
from hfcomp.evaluation.pairs.items import PairList, list_pairs
from hfcomp.evaluation.pairs.score_files import ENDINGS, KEY, MOST_PAIRS, pair_names
from hfcomp.evaluation.spec import Unavailable
from hfcomp.reporting.format import counted
from hfcomp.writing import replacing, write_bytes, write_csv, write_parquet

COLUMNS = (*KEY[:4], "image_id", "file", "text")


def write_pairs(path: str | Path, loaded: Iterable[Loaded], log: Callable[[str], None]) -> None:
    """Writes a row for each pair of an image and a text that benchmarks need a score of.

    The columns are those of a [`ScoreFile`] without the score, and `image_id` and `file`, where the image is. Images
    that have no file of their own, and parts of images, are written into a folder next to the list.

    Args:
        path: ends with `.csv`, `.jsonl` or `.parquet`; replaced where it is there.
        loaded: benchmarks with their data. What cannot be scored from pairs is left out.
        log: receives a line for each benchmark.

    Raises:
        ValueError: for another kind of file, or where no benchmark can be scored from pairs.
    """
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"{path}: expected a file that ends with {', '.join(ENDINGS)}.")
    tables = []
    for one in loaded:
        try:
            pairs = list_pairs(one.benchmark, one.data, MOST_PAIRS)
        except Unavailable as error:
            log(f"{one.benchmark.name}: left out: {error.reason}")
            continue
        table = _table(pairs, path.with_name(f"{path.stem}_images"))
        parts = f"{counted(len(pairs.keys), 'image')} with {counted(len(pairs.texts), 'text')}"
        log(f"{one.benchmark.name}: {counted(len(table), 'pair')}: {parts}")
        tables.append(table)
    if not tables:
        raise ValueError("no benchmark can be scored from pairs of an image and a text. Name another one.")
    _write(path, pd.concat(tables, ignore_index=True))
    log(f"written: {path}")


def _table(pairs: PairList, folder: Path) -> pd.DataFrame:
    files = np.array(list(_files(pairs, folder)), dtype=object)
    ids = pairs.items.rows["image_id"][:]
    table = pd.DataFrame(pair_names(pairs), columns=KEY[1:])
    table.insert(0, KEY[0], pairs.benchmark.name)
    table["image_id"] = [ids[place.row] for place in pairs.places]
    table["file"] = files[pairs.image]
    return table[list(COLUMNS)].drop_duplicates(list(KEY), ignore_index=True)


def _files(pairs: PairList, folder: Path) -> Iterator[str]:
    """Where each distinct image is; one that is no file is written into the folder."""
    for number, key in enumerate(pairs.keys):
        cell = pairs.cell(number)
        place = cell.get("path") if isinstance(cell, dict) and cell.get("bytes") is None else cell
        if isinstance(place, str):
            yield shown(place)  # without the signature of an address
            continue
        content, ending = _content(cell, str(pairs.first[number]))
        target = folder / f"{key.hex()}{ending}"
        write_bytes(target, content)
        yield str(target)


def _content(cell: Any, where: str) -> tuple[bytes, str]:
    """The bytes of an image with a name as they are; of any other, or a part of one, those of a PNG."""
    if isinstance(cell, dict) and not isinstance(cell, Crop | Fitted):
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
