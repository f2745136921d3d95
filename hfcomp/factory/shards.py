"""Makes one shard of a build: passes rows of the source through all stages and writes a Parquet file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features
from datasets import Image as ImageFeature

from hfcomp.checksums import file_hash
from hfcomp.data.built_sets.files import TRAIN
from hfcomp.data.images import SKIP_ADVICE, Unreadable, decode_image, open_image
from hfcomp.data.publishing import without_local_paths
from hfcomp.data.urls import UrlAccess, is_url, open_named, redact
from hfcomp.factory.builder import IMAGES
from hfcomp.factory.manifest import SET_ASIDE_ROWS, Record, shard_file, without_rows, write_record
from hfcomp.writing import write_parquet

ROW = "_row"
SET_ASIDE = "_set_aside"
COUNTS = "_counts"
THIS_RUN = "_this_run"
RESERVED = (ROW, SET_ASIDE, COUNTS, THIS_RUN)
# Query and fragment of a web URL. They may contain a signature, so they are not written into a dataset.
SECRETS_OF_URL = r"(?s)^((?:http|ftp)s?://[^?#]*)[?#].*$"
NO_IMAGE, BAD_IMAGE = "image file cannot be read", "image cannot be decoded"
DECODED = IMAGES("decoded")
THREADS = 8
# Readers fetch one group of rows at a time.
ROWS_PER_GROUP = 1000
ROWS_PER_GROUP_WITH_IMAGES = 100
BYTES_PER_GROUP = 90_000_000
# Column for the number of the row in the source, written if a build's features name it. If the source has the column,
# as in a chain of builds, it is also recorded with each row that is set aside.
SOURCE_ROW = "source_row"
KEPT = "Finished shards are kept: once there is room, run it again to resume."

Batch = dict[str, list[Any]]
StageFunction = Callable[[Batch], Batch]


class StageError(RuntimeError):
    """A stage failed. The message names the stage, the shard and its rows. Finished shards are kept."""


class DamagedSource(StageError):
    """An image of the source cannot be decoded. The message names its column, row and file."""


@dataclass(frozen=True)
class Stage:
    """A named step of a build: a function from a batch of columns to a batch of columns.

    A batch is a dictionary of lists of equal length. In addition to the columns it has `_row`, the number of each row
    in the source. A stage that drops or repeats rows must keep `_row` aligned. A stage may return three more columns,
    which are removed again:

    * `_set_aside`: the reason for excluding each row, or None. Text after `: ` is a detail that is not counted.
    * `_counts`: a dictionary from name to number for each row, summed over the dataset.
    * `_this_run`: the same for counts that differ between runs, such as cached answers. They are only reported.

    A row's output may depend only on that row, so neither shards nor processes change it.

    Attributes:
        name: Name in messages and in the manifest.
        make: Function that is called with `settings` in each process that runs the stage, and returns the stage's
            function. It must be at the top level of a module so that other processes can import it.
        identity: JSON values for the manifest, without paths on this machine; they must be equal to resume a build.
            Defaults to the settings.
    """

    name: str
    make: Callable[..., StageFunction]
    settings: Mapping[str, Any] = field(default_factory=dict)
    identity: Mapping[str, Any] | None = None

    def facts(self) -> dict[str, Any]:
        return {"name": self.name, **(self.settings if self.identity is None else self.identity)}


@dataclass(frozen=True)
class Job:
    """The settings that all shards of a build share. They are sent to the processes that make the shards.

    Attributes:
        dataset: The source, with undecoded images.
        reads: Columns of the source that stages see.
        urls: URLs that images may be fetched from; None sets the rows of such images aside.
        skip_damaged: Whether rows with an image that cannot be decoded are set aside (True) or end the build (False);
            None decodes no image.
    """

    dataset: Dataset
    stages: tuple[Stage, ...]
    reads: tuple[str, ...]
    features: Features
    folder: Path
    rows_per_shard: int
    urls: UrlAccess | None = None
    split: str = TRAIN
    skip_damaged: bool | None = None

    @property
    def shards(self) -> int:
        return -(-len(self.dataset) // self.rows_per_shard)

    def file(self, index: int) -> str:
        return shard_file(index, self.shards, self.split)

    def rows(self, index: int) -> range:
        start = index * self.rows_per_shard
        return range(start, min(start + self.rows_per_shard, len(self.dataset)))


@dataclass
class _Tally:
    """The counts of a shard, and its rows set aside."""

    first_rows: Mapping[int, int]
    counts: Counter[str] = field(default_factory=Counter)
    this_run: Counter[str] = field(default_factory=Counter)
    set_aside: list[dict[str, Any]] = field(default_factory=list)

    def leave_out(self, row: int, reason: str) -> None:
        name, _, detail = reason.partition(": ")
        first = {SOURCE_ROW: self.first_rows[row]} if row in self.first_rows else {}
        self.set_aside.append({"row": row, **first, "reason": name} | ({"detail": detail} if detail else {}))

    def count_reasons(self) -> dict[str, int]:
        return dict(sorted(Counter(row["reason"] for row in self.set_aside).items()))


class ShardMaker:
    """Makes shards of one build. Stages load their models and files once."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._source = job.dataset.with_format("arrow")
        self._functions: list[StageFunction] | None = None

    def prepare(self) -> None:
        """Makes the functions of the stages. Their errors are passed on unchanged."""
        if self._functions is None:
            self._functions = [stage.make(**stage.settings) for stage in self.job.stages]

    def make(self, index: int) -> Record:
        """Writes a shard and its record, and returns the record without the rows set aside.

        Raises:
            StageError: If a stage fails, or if the shard cannot be written, for example to a full disk.
        """
        return note_shard(self.job, index, self.write(index))

    def write(self, index: int) -> Record:
        """Writes a shard and returns its record without writing it. Raises as `make` does."""
        # A shard depends only on its index and the job, not on where, when or in which order shards are built.
        self.prepare()
        rows = self.job.rows(index)
        source = self._source[rows.start : rows.stop]
        tally = _Tally(_first_rows(source, rows))
        source, numbers = self._embed_images(source, rows, tally)
        batch: Batch = {name: source.column(name).to_pylist() for name in self.job.reads} | {ROW: numbers}
        for stage, function in zip(self.job.stages, self._functions, strict=True):
            batch = self._apply(stage, function, batch, index, tally)
        table = self._table(batch, source, numbers, index)
        path = self.job.folder / self.job.file(index)
        has_images = any(isinstance(feature, ImageFeature) for feature in self.job.features.values())
        rows_per_group = ROWS_PER_GROUP_WITH_IMAGES if has_images else ROWS_PER_GROUP
        try:
            write_parquet(path, table, rows_per_group=rows_per_group, bytes_per_group=BYTES_PER_GROUP)
        except OSError as error:
            raise _write_error(self.job, index, error) from error
        return {
            "file": self.job.file(index),
            "sha256": file_hash(path),
            "rows": len(table),
            "source_rows": [rows.start, rows.stop],
            "counts": dict(sorted(tally.counts.items())),
            "set_aside": tally.count_reasons(),
            # Stages set rows aside one after the other. Sorting by row removes the order of the stages.
            SET_ASIDE_ROWS: sorted(tally.set_aside, key=lambda row: row["row"]),
            THIS_RUN: dict(tally.this_run),
        }

    def _embed_images(self, source: pa.Table, rows: range, tally: _Tally) -> tuple[pa.Table, list[int]]:
        """Returns the rows with the bytes of image files. Rows with unreadable files are set aside."""
        failed: dict[int, str] = {}
        for name, feature in self.job.dataset.features.items():
            if isinstance(feature, ImageFeature) and (name in self.job.features or name in self.job.reads):
                column, wrong = embed_bytes(source.column(name), self.job.urls)
                failed |= {place: f"{NO_IMAGE}: {name} {reason}" for place, reason in wrong.items()}
                source = source.set_column(source.column_names.index(name), name, column)
                # The first reason is kept: an unreadable file is not decoded as well.
                failed = self._find_damaged(column, name, rows, failed, tally) | failed
        for place, reason in failed.items():
            tally.leave_out(rows[place], reason)
        kept = [place for place in range(len(rows)) if place not in failed]
        return (_select_rows(source, kept) if failed else source), [rows[place] for place in kept]

    def _find_damaged(
        self, images: pa.ChunkedArray, name: str, rows: range, failed: Mapping[int, str], tally: _Tally
    ) -> dict[int, str]:
        """Decodes each image of the shard once and returns the reasons for failures, by place.

        Raises:
            DamagedSource: For the first failure, unless such rows are to be set aside.
        """
        if self.job.skip_damaged is None:
            return {}

        def problem(place: int) -> str | None:
            try:
                decode_image(images[place].as_py(), where=f"column {name!r}, row {rows[place]}")
            except Unreadable as error:
                return str(error)
            return None

        has_image = pc.is_valid(images).to_pylist()
        places = [place for place in range(len(rows)) if has_image[place] and place not in failed]
        # Decoders release the GIL, so threads are enough. `map` keeps the order, so the image that an error names is
        # the same in every run.
        with ThreadPoolExecutor(THREADS) as pool:
            problems = zip(places, pool.map(problem, places), strict=True)
            damage = {place: reason for place, reason in problems if reason is not None}
        if damage and not self.job.skip_damaged:
            raise DamagedSource(f"{next(iter(damage.values()))} {SKIP_ADVICE}")
        tally.counts[DECODED] += len(places)
        return {place: f"{BAD_IMAGE}: {without_local_paths(reason)}" for place, reason in damage.items()}

    def _apply(self, stage: Stage, function: StageFunction, batch: Batch, index: int, tally: _Tally) -> Batch:
        where = self._where(stage, index)
        try:
            # A copy is passed, so a stage that adds columns in place does not change the batch that an error
            # describes.
            result = dict(function(dict(batch)))
        except Exception as error:
            raise StageError(f"{where}: {type(error).__name__}: {error}") from error
        _check_batch(result, where)
        for numbers in result.pop(COUNTS, ()):
            tally.counts.update(numbers)
        for numbers in result.pop(THIS_RUN, ()):
            tally.this_run.update(numbers)
        reasons = result.pop(SET_ASIDE, None)
        if reasons is None:
            return result
        for row, reason in zip(result[ROW], reasons, strict=True):
            if reason is not None:
                tally.leave_out(row, reason)
        kept = [place for place, reason in enumerate(reasons) if reason is None]
        return {name: [values[place] for place in kept] for name, values in result.items()}

    def _where(self, stage: Stage, index: int) -> str:
        rows = self.job.rows(index)
        return f"stage {stage.name!r}, shard {index} of {self.job.shards} (rows {rows.start:,} to {rows.stop - 1:,})"

    def _table(self, batch: Batch, source: pa.Table, numbers: list[int], index: int) -> pa.Table:
        """The columns to write: those from the stages, and the source's own columns for the remaining rows."""
        # Stages may drop, repeat or reorder rows. `_row` records the origin of each row, so columns that no stage
        # touched are copied from the source and never become Python objects.
        place_of = {row: place for place, row in enumerate(numbers)}
        places = [place_of[row] for row in batch[ROW]]
        if places != list(range(len(numbers))):
            source = _select_rows(source, places)
        schema = self.job.features.arrow_schema
        columns = []
        for name in self.job.features:
            kind = schema.field(name).type
            # The first build of a chain writes these numbers. Later builds find them in their source and pass them on.
            if name == SOURCE_ROW and name not in batch and name not in source.column_names:
                columns.append(pa.array(batch[ROW], type=kind))
                continue
            if name not in batch and name not in source.column_names:
                where = self._where(self.job.stages[-1], index)
                raise StageError(f"{where}: no column {name!r} was returned; it has: {', '.join(batch)}.")
            if name not in batch:
                columns.append(source.column(name).cast(kind))
                continue
            # Only images need the `datasets` encoder, because a stage may return them as pictures, paths or bytes.
            is_image = isinstance(self.job.features[name], ImageFeature)
            try:
                values = self.job.features.encode_column(batch[name], name) if is_image else batch[name]
                columns.append(pa.array(values, type=kind))
            except (pa.ArrowException, TypeError, ValueError) as error:
                where = self._where(self.job.stages[-1], index)
                raise StageError(f"{where}: column {name!r} is not {kind}: {error}") from error
        return pa.Table.from_arrays(columns, schema=schema)


def this_run(counts: Mapping[str, int], before: Mapping[str, int], rows: int) -> list[Counter[str]]:
    """The column `_this_run` of a batch: the first row has the difference of the counts before and after."""
    return [Counter(counts) - Counter(before) if row == 0 else Counter() for row in range(rows)]


def note_shard(job: Job, index: int, record: Record) -> Record:
    """Writes the record of a finished shard, and returns it without the rows set aside.

    The counts of this run, under `THIS_RUN`, are returned but not written.

    Raises:
        StageError: If the record cannot be written, for example to a full disk.
    """
    try:
        write_record(job.folder, index, {name: value for name, value in record.items() if name != THIS_RUN})
    except OSError as error:
        raise _write_error(job, index, error) from error
    return without_rows(record)


def _write_error(job: Job, index: int, error: OSError) -> StageError:
    return StageError(f"shard {index} of {job.shards} cannot be written: {error}. {KEPT}")


def _first_rows(source: pa.Table, rows: range) -> dict[int, int]:
    """The row numbers in the source of a chain's first build; empty if there is no chain."""
    if SOURCE_ROW not in source.column_names or not pa.types.is_integer(source.schema.field(SOURCE_ROW).type):
        return {}
    return dict(zip(rows, source.column(SOURCE_ROW).to_pylist(), strict=True))


def _select_rows(table: pa.Table, places: Sequence[int]) -> pa.Table:
    """Selects rows by place as slices, without a copy. `take` would join a column's arrays and fail beyond 2 GiB."""
    runs: list[list[int]] = []  # start and length
    for place in places:
        if runs and place == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([place, 1])
    return pa.concat_tables([table.slice(*run) for run in runs] or [table.slice(0, 0)])


def embed_bytes(images: pa.ChunkedArray, urls: UrlAccess | None = None) -> tuple[pa.ChunkedArray, dict[int, str]]:
    """Embeds the bytes of image files, which makes a dataset self-contained. Existing bytes are not changed.

    Args:
        images: Structs of `bytes` and `path`, as `datasets` stores undecoded images.
        urls: URLs that images may be fetched from.

    Returns:
        The images with file names instead of paths, and the reasons why files could not be read, by place.
    """
    chunks, failed, start = [], {}, 0
    for chunk in images.chunks:
        content, path = pc.struct_field(chunk, "bytes"), pc.struct_field(chunk, "path")
        needed = pc.and_(pc.is_null(content), pc.is_valid(path)).to_pylist()
        if any(needed):
            contents = content.to_pylist()
            for place, name in enumerate(path.to_pylist()):
                if needed[place]:
                    contents[place], reason = _read_image(name, urls)
                    if reason:
                        failed[start + place] = reason
            content = pa.array(contents, type=content.type)
        # Only the file name of a path is kept: folders describe this machine, and a URL's query may be a signature.
        names = pc.replace_substring_regex(path, pattern=SECRETS_OF_URL, replacement=r"\1")
        names = pc.replace_substring_regex(names, pattern=r"^.*[/\\]", replacement="")
        missing, done = chunk.is_null(), 0
        # More than 2 GiB arrive as several arrays.
        for part in content.chunks if isinstance(content, pa.ChunkedArray) else [content]:
            rows = slice(done, done + len(part))
            chunks.append(pa.StructArray.from_arrays([part, names[rows]], ["bytes", "path"], mask=missing[rows]))
            done += len(part)
        start += len(chunk)
    return pa.chunked_array(chunks, type=images.type), failed


def _read_image(path: str, urls: UrlAccess | None) -> tuple[bytes | None, str]:
    """Reads a file. A dataset may reference any local file, so files other than images are rejected."""
    name = redact(path).replace("\\", "/").rpartition("/")[2]
    if is_url(path) and (urls is None or not urls.allows(path)):
        return None, f"{name!r} is a URL, which is not fetched without --allow_urls"
    try:
        with open_named(path, "image", urls) as file:
            content = file.read()
        # Only the header is read, which is enough to reject a text or a key that a hostile dataset names as its image.
        open_image(BytesIO(content)).close()
    except FileNotFoundError:
        return None, f"{name!r}, which does not exist"
    except Exception as error:  # file systems and image readers raise anything on bad input
        return None, f"{name!r} ({type(error).__name__})"
    return content, ""


def _check_batch(batch: Batch, where: str) -> None:
    if ROW not in batch:
        raise StageError(f"{where}: the returned batch has no column {ROW!r}; a stage must pass it on.")
    lengths = {name: len(values) for name, values in batch.items()}
    other = {name: length for name, length in lengths.items() if length != lengths[ROW]}
    if other:
        raise StageError(
            f"{where}: columns of unequal length were returned: {json.dumps({ROW: lengths[ROW], **other})}."
        )
