"""Builders for text tables and archives that replace those of `datasets` and lose no cell, member or row."""

from __future__ import annotations

import logging
import os
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import datasets
import pyarrow as pa
from datasets import BuilderConfig, DatasetBuilder, Features, load_dataset_builder
from datasets.features.features import cast_to_python_objects
from datasets.filesystems import COMPRESSION_FILESYSTEMS
from datasets.fingerprint import Hasher
from datasets.packaged_modules.csv.csv import Csv
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from datasets.packaged_modules.json.json import Json
from datasets.packaged_modules.webdataset.webdataset import WebDataset
from datasets.utils.file_utils import xopen
from datasets.utils.info_utils import is_small_dataset
from fsspec.compression import compr

from hfcomp.data.formats.archives import KEY, member_names, not_whole, survey
from hfcomp.reading import FileError, check_surrogates, parse_json
from hfcomp.text_tables import TextTable

logger = logging.getLogger(__name__)

OPTIONS = ("sep", "delimiter", "encoding", "features", "chunksize")
"""Supported options of the `datasets` CSV reader. If a card states others, pandas reads the file."""
_ROWS = 10_000  # rows per batch
_LINES = 10_000  # lines of a stream that are read to detect a table's format


def table_of_texts(columns: list[str], rows: list[list[str]]) -> pa.Table:
    # Empty cells are missing values.
    cells = zip(*rows, strict=True) if rows else [()] * len(columns)
    texts = [pa.array([cell or None for cell in column], pa.string()) for column in cells]
    return pa.Table.from_arrays(texts, columns)


def tables_of_texts(table: TextTable) -> Iterator[pa.Table]:
    rows: list[list[str]] = []
    for _, row in table.rows():
        rows.append(row)
        if len(rows) == _ROWS:
            yield table_of_texts(table.columns, rows)
            rows = []
    if rows:
        yield table_of_texts(table.columns, rows)


class TextTables(Csv):
    """Builder for CSV and TSV files; `info.description` contains the notes about them."""

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        dl_manager.download_config.extract_on_the_fly = True
        files = dl_manager.download(self.config.data_files)
        limit = _LINES if dl_manager.is_streaming else None
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
            for part, rows in enumerate(tables_of_texts(table)):
                yield (number, part), self._cast_table(rows)


class FoldersWithTables(ImageFolder):
    """Builder for image folders, whose `metadata.csv` is read like any other table."""

    def _read_metadata(self, metadata_file: str, metadata_ext: str = "") -> Iterator[pa.Table]:
        if metadata_ext != ".csv" or self.config.filters is not None:
            yield from super()._read_metadata(metadata_file, metadata_ext=metadata_ext)
            return
        yield from tables_of_texts(TextTable(partial(xopen, metadata_file, "rb"), metadata_file))


def _check_columns(table: TextTable, first: TextTable) -> None:
    if set(table.columns) != set(first.columns):
        raise FileError(
            f"{table.name} has the columns {', '.join(table.columns)}, but {first.name} has "
            f"{', '.join(first.columns)}. All tables of a dataset need the same columns."
        )


URL = "__url__"
"""Column with the archive's path."""
_SAMPLES = 5
"""Number of samples from which types are inferred, in addition to the first sample of each column."""
_TYPED_SAMPLES = 100  # maximum number of samples of a stream that are read to infer types
_MEMBERS = 500  # members of a stream that are read to detect file extensions
Members = Iterable[tuple[str, Any]]


class Archives(WebDataset):
    """Builder for WebDataset archives; if a sample lacks a member, its column contains null."""

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        files = dl_manager.download(self.config.data_files)
        paths = [path for split_paths in files.values() for path in split_paths]
        if dl_manager.is_streaming:
            first = (name for name, _ in dl_manager.iter_archive(paths[0]))
            self.layout = survey([(paths[0], list(islice(first, _MEMBERS)))])
        else:
            self.layout = survey((path, list(member_names(Path(path)))) for path in paths)
        splits = {
            name: {"tar_paths": split_paths, "tar_iterators": [dl_manager.iter_archive(path) for path in split_paths]}
            for name, split_paths in files.items()
        }
        if self.info.features is not None:
            self.layout = self.layout.rename_to(list(self.info.features))
        else:
            pairs = (pair for given in splits.values() for pair in zip(*given.values(), strict=True))
            samples = (sample for path, members in pairs for sample in self._samples(path, members))
            self.info.features = self._features(islice(samples, _TYPED_SAMPLES if dl_manager.is_streaming else None))
        return [datasets.SplitGenerator(name=name, gen_kwargs=given) for name, given in splits.items()]

    def _features(self, samples: Iterator[dict[str, Any]]) -> datasets.Features:
        """Infers the column types from the first samples and the first sample of each column."""
        # `datasets` assumes that the first samples have all columns, so a member that only later samples have would be
        # lost.
        missing, examples = set(self.layout.columns.values()), []
        for number, sample in enumerate(samples):
            if number < _SAMPLES or missing & sample.keys():
                examples.append({name: self._stored_value(name, value) for name, value in sample.items()})
                missing -= sample.keys()
            if number >= _SAMPLES and not missing:
                break
        if not examples:
            raise FileError(
                f"{next(iter(self.config.data_files.values()))[0]} has no samples: expected members such as 000.jpg "
                "and 000.txt."
            )
        names = [*dict.fromkeys([*sorted(self.layout.columns.values()), KEY, URL])]
        rows = [[{name: example.get(name) for name in names}] for example in examples]
        tables = [pa.Table.from_pylist(cast_to_python_objects(row, only_1d_for_numpy=True)) for row in rows]
        features = datasets.Features.from_arrow_schema(pa.concat_tables(tables, promote_options="default").schema)
        for name in features:
            features[name] = self._media_type(name) or features[name]
        return features

    def _media_type(self, column: str) -> Any:
        ending = column.rpartition(".")[2]
        kinds = (("IMAGE", datasets.Image), ("AUDIO", datasets.Audio), ("VIDEO", datasets.Video))
        return next((kind() for name, kind in kinds if ending in getattr(self, f"{name}_EXTENSIONS")), None)

    def _stored_value(self, column: str, value: Any) -> Any:
        return value["bytes"] if self._media_type(column) and isinstance(value, dict) else value

    def _samples(self, path: str, members: Members) -> Iterator[dict[str, Any]]:
        sample: dict[str, Any] = {}
        try:
            for name, file in members:
                parts = self.layout.split(name)
                if parts is None:
                    continue
                key, ending = parts
                if sample and sample[KEY] != key:
                    yield sample
                    sample = {}
                sample |= {KEY: key, URL: path}
                self._add(sample, name, ending, file)
        except tarfile.ReadError as error:
            raise FileError(not_whole(Path(path), error)) from error
        if sample:
            yield sample

    def _add(self, sample: dict[str, Any], name: str, ending: str, file: Any) -> None:
        column = self.layout.column(ending)
        if column is None:
            if ending not in (reported := self.__dict__.setdefault("reported_endings", set())):
                reported.add(ending)
                logger.warning(
                    f"{sample[URL]}: the sample {sample[KEY]!r} has a member {ending!r}, which the first samples "
                    "lack. The stream leaves out members with this extension."
                )
            return
        if column in sample:
            raise FileError(
                f"{sample[URL]}: the sample {sample[KEY]!r} has two members for the column {column!r}; the second is "
                f"{name}. Load the archive without streaming, which keeps both."
            )
        value = self._decode(sample[URL], name, ending, file)
        sample[column] = {"path": name, "bytes": value} if self._media_type(column) else value

    def _decode(self, path: str, name: str, ending: str, file: Any) -> Any:
        # Decode by extension like `datasets`, except for JSON: `parse_json` raises for lone surrogates.
        last = ending.rpartition(".")[2]
        openers = {end: compr.get(kind.compression) for kind in COMPRESSION_FILESYSTEMS for end in kind.extensions}
        if opener := openers.get(f".{last}"):
            with opener(file, mode="rb") as extracted:
                content = extracted.read()
            last = ending.removesuffix(f".{last}").rpartition(".")[2]
        else:
            content = file.read()
        decode = parse_json if last in ("json", "jsn") else self.DECODERS.get(last)
        try:
            return decode(content) if decode else content
        except Exception as error:  # the decoders come from several libraries
            reason = " ".join(str(error).split())
            raise FileError(
                f"{path}: the member {name} cannot be read as {last}: {reason}. Correct it and repack the archive."
            ) from error

    def _generate_examples(self, tar_paths: Sequence[str], tar_iterators: Sequence[Members]) -> Iterator[Any]:
        for number, (path, members) in enumerate(zip(tar_paths, tar_iterators, strict=True)):
            for place, sample in enumerate(self._samples(path, members)):
                yield f"{number}-{place}", {name: sample.get(name) for name in self.info.features}


_REPLACED: dict[type[DatasetBuilder], type[DatasetBuilder]] = {
    Csv: TextTables,
    ImageFolder: FoldersWithTables,
    WebDataset: Archives,
}
_VERSION = "1"
"""Version of the builders' output; part of the name under which `datasets` caches it."""


def load_dataset(
    path: str,
    *args: Any,
    split: str | None = None,
    streaming: bool = False,
    num_proc: int | None = None,
    **kwargs: Any,
) -> Any:
    """Like `datasets.load_dataset`, but hfcomp reads text tables and archives and logs notes about them."""
    late = {key: kwargs.pop(key) for key in ("verification_mode", "keep_in_memory") if key in kwargs}
    kwargs = {**folder_cache(path, *args, **kwargs), **kwargs}
    # `datasets` locates the files and chooses the builder. Our builders then replace three of its builders.
    theirs = load_dataset_builder(path, *args, **kwargs)
    features = theirs.info.features
    is_replaced = isinstance(theirs, tuple(_REPLACED))
    # Features may be stated by a card, or be a guess that `datasets` made in an earlier read. Our builder must not
    # adopt guesses. A builder with an empty cache has only the stated features.
    if features is not None and is_replaced and os.path.isdir(theirs.cache_dir):
        with TemporaryDirectory() as place:
            features = load_dataset_builder(path, *args, **{**kwargs, "cache_dir": place}).info.features
    ours = own_builder(theirs, features)
    builder = theirs if ours is None else ours
    if streaming:
        return builder.as_streaming_dataset(split=split)
    # Arrow's JSON reader silently turns lone surrogates into other text, so files are searched for them first.
    if isinstance(builder, Json) and not os.path.isdir(builder.cache_dir):
        for file in chain.from_iterable(builder.config.data_files.values()):
            if os.path.isfile(file) and not file.endswith(".gz"):
                check_surrogates(file)
    in_memory = late.pop("keep_in_memory", None)
    prepared = {key: kwargs[key] for key in ("download_config", "download_mode", "storage_options") if key in kwargs}
    builder.download_and_prepare(num_proc=num_proc, **late, **prepared)
    for note in filter(None, ours.info.description.split("\n") if ours else ()):
        logger.warning(note)
    if in_memory is None:
        in_memory = is_small_dataset(builder.info.dataset_size)
    return builder.as_dataset(split=split, in_memory=in_memory)


def folder_cache(path: str, *args: Any, split: str | None = None, **kwargs: Any) -> dict[str, str]:
    """Returns a `cache_dir` for a local folder whose card may list its files; empty for anything else.

    `datasets` 5.2 names the prepared rows of such a folder only by the folder's last name and its card. Two folders
    with the same name, or a folder whose files were replaced, would all return the rows that were read first.
    """
    if not os.path.isfile(os.path.join(path, "README.md")):
        return {}
    files = load_dataset_builder(path, *args, **kwargs).config.data_files or {}
    facts = {split: (list(paths), paths.origin_metadata) for split, paths in files.items()}
    return {"cache_dir": os.path.join(datasets.config.HF_DATASETS_CACHE, f"folder-{Hasher.hash(facts)}")}


def own_builder(theirs: DatasetBuilder, features: Features | None) -> DatasetBuilder | None:
    kind = next((kind for base, kind in _REPLACED.items() if isinstance(theirs, base)), None)
    settings = _settings(theirs.config)
    if kind is None or (kind is TextTables and settings.keys() - set(OPTIONS)):
        return None
    return kind(
        cache_dir=theirs._cache_dir_root,
        dataset_name=theirs.dataset_name,
        config_name=theirs.config.name,
        hash=f"{theirs.hash}-{_VERSION}",
        base_path=theirs.base_path,
        features=settings.pop("features", None) or features,
        token=theirs.token,
        data_files=theirs.config.data_files,
        storage_options=theirs.storage_options,
        **settings,
    )


def _settings(config: BuilderConfig) -> dict[str, Any]:
    default, shared = type(config)(), {field.name for field in fields(BuilderConfig)}
    names = [field.name for field in fields(config) if field.name not in shared]
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(default, name)}
