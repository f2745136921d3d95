"""The builder of `datasets` for WebDataset archives, with the columns of [`hfcomp.data.formats.sample_names`].

`datasets` takes the endings of the first five samples for the columns and drops what later samples have besides, reads
`JPG` and `jpg` as two columns, and refuses an archive whose first samples differ without naming any.
"""

from __future__ import annotations

import logging
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
from datasets.features.features import cast_to_python_objects
from datasets.filesystems import EXTENSION_TO_COMPRESSION_FS_FILE_CLS
from datasets.packaged_modules.webdataset.webdataset import WebDataset

from hfcomp.data.formats.archives import member_names, not_whole
from hfcomp.data.formats.sample_names import KEY, survey
from hfcomp.reading import FileError, parse_json

logger = logging.getLogger(__name__)
URL = "__url__"
"""The column of archives' paths."""
_SAMPLES = 5
"""Samples that types are taken from, besides the first of each column."""
_LOOKED_AT = 100  # samples of a stream
_MEMBERS = 500  # of a stream, for its endings
Members = Iterable[tuple[str, Any]]


class Archives(WebDataset):
    """WebDataset archives; a sample without a member has null in its column."""

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        files = dl_manager.download(self.config.data_files)
        paths = [path for of_split in files.values() for path in of_split]
        if dl_manager.is_streaming:
            first = (name for name, _ in dl_manager.iter_archive(paths[0]))
            self.layout = survey([(paths[0], list(islice(first, _MEMBERS)))])
        else:
            self.layout = survey((path, list(member_names(Path(path)))) for path in paths)
        splits = {
            name: {"tar_paths": of_split, "tar_iterators": [dl_manager.iter_archive(path) for path in of_split]}
            for name, of_split in files.items()
        }
        if self.info.features is not None:
            self.layout = self.layout.named_as(list(self.info.features))
        else:
            pairs = (pair for given in splits.values() for pair in zip(*given.values(), strict=True))
            samples = (sample for path, members in pairs for sample in self._samples(path, members))
            self.info.features = self._features(islice(samples, _LOOKED_AT if dl_manager.is_streaming else None))
        return [datasets.SplitGenerator(name=name, gen_kwargs=given) for name, given in splits.items()]

    def _features(self, samples: Iterator[dict[str, Any]]) -> datasets.Features:
        """The types of columns, from the first samples and the first of each column."""
        missing, shown = set(self.layout.columns.values()), []
        for number, sample in enumerate(samples):
            if number < _SAMPLES or missing & sample.keys():
                shown.append({name: self._stored(name, value) for name, value in sample.items()})
                missing -= sample.keys()
            if number >= _SAMPLES and not missing:
                break
        if not shown:
            raise FileError(
                f"{next(iter(self.config.data_files.values()))[0]} has no samples: expected members such as 000.jpg "
                "and 000.txt."
            )
        names = [*dict.fromkeys([*sorted(self.layout.columns.values()), KEY, URL])]
        known = [[{name: one.get(name) for name in names}] for one in shown]
        tables = [pa.Table.from_pylist(cast_to_python_objects(one, only_1d_for_numpy=True)) for one in known]
        found = datasets.Features.from_arrow_schema(pa.concat_tables(tables, promote_options="default").schema)
        for name in found:
            found[name] = self._media_type(name) or found[name]
        return found

    def _media_type(self, column: str) -> Any:
        """The feature of images, audio and video, by the ending; `None` for others."""
        ending = column.rpartition(".")[2]
        kinds = (("IMAGE", datasets.Image), ("AUDIO", datasets.Audio), ("VIDEO", datasets.Video))
        return next((kind() for name, kind in kinds if ending in getattr(self, f"{name}_EXTENSIONS")), None)

    def _stored(self, column: str, value: Any) -> Any:
        """A member as its type is inferred from: of media, which are bytes with a name, the bytes."""
        return value["bytes"] if self._media_type(column) and isinstance(value, dict) else value

    def _samples(self, path: str, members: Members) -> Iterator[dict[str, Any]]:
        """The samples of an archive, a dictionary of columns each."""
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
            if ending not in (told := self.__dict__.setdefault("told", set())):
                told.add(ending)
                logger.warning(
                    f"{sample[URL]}: the sample {sample[KEY]!r} has {ending!r}, which the first samples lack; members "
                    "with this ending are left out of the stream."
                )
            return
        if column in sample:
            raise FileError(
                f"{sample[URL]}: the sample {sample[KEY]!r} has two members for the column {column!r}, the second is "
                f"{name}. Load the archive without streaming, which keeps both."
            )
        value = self._decoded(sample[URL], name, ending, file)
        sample[column] = {"path": name, "bytes": value} if self._media_type(column) else value

    def _decoded(self, path: str, name: str, ending: str, file: Any) -> Any:
        """The content of a member, as `datasets` decodes it by its ending."""
        last = ending.rpartition(".")[2]
        if f".{last}" in EXTENSION_TO_COMPRESSION_FS_FILE_CLS:
            with EXTENSION_TO_COMPRESSION_FS_FILE_CLS[f".{last}"](file, mode="rb") as extracted:
                content = extracted.read()
            last = ending.removesuffix(f".{last}").rpartition(".")[2]
        else:
            content = file.read()
        decode = parse_json if last in ("json", "jsn") else self.DECODERS.get(last)
        try:
            return decode(content) if decode else content
        except Exception as error:  # of the decoders, which are of several libraries
            reason = " ".join(str(error).split())
            raise FileError(
                f"{path}: its member {name} cannot be read as {last}: {reason}. Correct it and pack the archive again."
            ) from error

    def _generate_examples(self, tar_paths: Sequence[str], tar_iterators: Sequence[Members]) -> Iterator[Any]:
        for number, (path, members) in enumerate(zip(tar_paths, tar_iterators, strict=True)):
            for place, sample in enumerate(self._samples(path, members)):
                yield (number, place), {name: sample.get(name) for name in self.info.features}
