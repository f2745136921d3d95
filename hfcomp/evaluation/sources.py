"""Where a benchmark's rows come from: its authors' files, a folder in the Hub's layout, or the Hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hfcomp.data.formats.archives import COUNT, check_archive, numbered_archives
from hfcomp.evaluation.cells import files_of, pick_cells
from hfcomp.evaluation.spec import Benchmark, BenchmarkData, Data, Folders, Origin, Unavailable

if TYPE_CHECKING:
    from datasets import Dataset


def load_items(benchmark: Benchmark, folders: Folders | None = None) -> BenchmarkData:
    """A benchmark's items, from its folder if there is one, else from the Hub or its authors' repository.

    Args:
        benchmark: gives the forms of its data.
        folders: local data folders.

    Raises:
        Unavailable: when the data is missing, with the reason and how to get it.
        ValueError: when the folder holds none of the forms, or something in it is wrong.
    """
    folders = folders or Folders()
    folder = folders.of(benchmark.name)
    # A folder of the benchmark's own takes precedence over a folder that a family shares.
    if folder is None and benchmark.folder is not None:
        folder = folders.of(benchmark.folder)
    forms = "; or ".join(form.layout for form in benchmark.data)
    if folder is not None:
        for form in benchmark.data:
            items = form.local(folder, folders)
            if items is not None:
                return items
        # No fallback to the Hub: the user named this folder, and would get numbers of other data.
        raise ValueError(f"{benchmark.name}: {folder} does not contain its data. Expected {forms}. {benchmark.obtain}")
    # Each form may fail for a reason of its own, and all reasons are reported.
    reasons, ways = [], [benchmark.obtain]
    for form in benchmark.data:
        try:
            return form.remote(folders)
        except Unavailable as error:
            reasons.append(error.reason)
            ways.append(error.how_to_fix)
    ways.append(f"Or pass --data {benchmark.folder or benchmark.name}=DIR, a folder with {forms}.")
    # Several forms may fail for the same reason, which is listed once.
    said = " ".join(dict.fromkeys(filter(None, reasons)))
    raise Unavailable(said or "Not on the Hub in a readable form.", " ".join(filter(None, ways)))


@dataclass(frozen=True)
class Pool:
    """Images by file name that several benchmarks share.

    Attributes:
        name: of the folder that holds them.
        repo: on the Hub; `None` where they are not.
        image: its column of images.
        key: its column of file names.
        revision: of `repo`, where one could be confirmed.
        data_files: files of `split`, where the others are not to be fetched.
        obtain: how to get the folder.
        parts: sub-folders of the folder that images may be in as well.
    """

    name: str
    repo: str | None = None
    split: str = "test"
    image: str = "image"
    key: str = "file_name"
    revision: str | None = None
    data_files: str | None = None
    obtain: str = ""
    parts: tuple[str, ...] = ()

    def cells(self, names: Sequence[str], folders: Folders, beside: Path | None) -> tuple[Sequence[Any], Origin]:
        """The images of these names, `None` for one that is not there.

        Raises:
            Unavailable: when there is no such folder and the Hub does not have them, unless texts suffice.
        """
        folder = self.folder(folders, beside)
        if folder is not None:
            return files_of(folder, names, self.parts), Origin(str(folder))
        try:
            return self._hub_cells(names)
        except Unavailable:
            if not folders.texts_suffice:
                raise
            # For checks that read only texts, such as an audit.
            return [None] * len(names), Origin(f"{self.name}: unavailable")

    def _hub_cells(self, names: Sequence[str]) -> tuple[Sequence[Any], Origin]:
        if self.repo is None:
            raise Unavailable(f"The folder {self.name} of images is missing.", self.obtain)
        from hfcomp.evaluation import (
            hub,  # imports that take seconds, which whoever lists benchmarks need not wait for
        )

        # Without `data_files` the files of all splits would be downloaded.
        files = {"data_files": {self.split: self.data_files}} if self.data_files else {}
        try:
            rows, origin = hub.hub_rows(self.repo, {"split": self.split, **files}, self.revision)
        except Unavailable as error:
            raise Unavailable(f"Its images in {error.reason}", self.obtain) from error
        require(rows, (self.image, self.key), self.repo)
        place = {name: row for row, name in enumerate(rows[self.key])}
        return pick_cells(rows[self.image], [place.get(name) for name in names]), origin

    def folder(self, folders: Folders, beside: Path | None) -> Path | None:
        # A folder next to the benchmark's data takes precedence over the shared one.
        inside = None if beside is None else beside / self.name
        return inside if inside is not None and inside.is_dir() else folders.of(self.name)


def _load_folder(folder: Path, options: Mapping[str, Any]) -> Dataset:
    from hfcomp.data.formats.own_builders import folder_cache
    from hfcomp.data.formats.tables import literal_options
    from hfcomp.evaluation import hub

    options = literal_options(folder, options.get("name"), options)
    return hub.load_dataset(str(folder), **folder_cache(str(folder), **options), **options)


@dataclass(frozen=True)
class HubData(Data):
    """A dataset on the Hub as files that need no script, or a folder in that layout.

    Attributes:
        repo: id.
        columns: contract name to the dataset's own.
        subsets: subset to what `load_dataset` takes to load it: `name`, `split`, and `data_files` by split where the
            files of the others should not be fetched or files of another kind are in the folder.
        reshape: what remains to be done with the renamed rows of one subset.
        pool: where images are, if not in the rows; `columns` then maps `image` to the column of file names.
        revision: a commit, where one could be confirmed.
        train: what `load_dataset` takes for the rows that a probe is fitted on.
        files: which files a folder in that layout holds; "*.tar" for WebDataset.
        optional: as `columns`, of columns that it may lack.
    """

    repo: str
    columns: Mapping[str, str]
    subsets: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"all": {"split": "test"}})
    reshape: Callable[[Dataset], Dataset] | None = None
    pool: Pool | None = None
    revision: str | None = None
    train: Mapping[str, Any] | None = None
    files: str = "*.parquet"
    optional: Mapping[str, str] = field(default_factory=dict)

    @property
    def layout(self) -> str:
        """In words."""
        return f"the files of {self.repo} on the Hub ({self.files})"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        """The items, when the folder holds such files."""
        if not folder.is_dir() or next(folder.rglob(self.files), None) is None:
            return None
        # A truncated archive would give fewer rows and no error.
        if self.files == "*.tar":
            self._check_archives(folder)
        parts = {name: _load_folder(folder, options) for name, options in self.subsets.items()}
        train = _load_folder(folder, self.train) if self.train else None
        return self._items(parts, Origin(str(folder)), train, folders, folder)

    def _check_archives(self, folder: Path) -> None:
        patterns = {pattern for one in self.subsets.values() for pattern in one["data_files"].values()}
        archives = sorted(path for pattern in patterns for path in folder.glob(pattern))
        # The file with the number of archives shows whether a whole archive is missing.
        for place in sorted({path.parent for path in archives if (path.parent / COUNT).is_file()}):
            numbered_archives(place)
        for path in archives:
            check_archive(path)

    def remote(self, folders: Folders) -> BenchmarkData:
        """The items from the Hub."""
        from hfcomp.evaluation import hub

        origin, parts, revision = None, {}, self.revision
        # The first part settles the commit: a push between two parts would mix two versions.
        for name, options in self.subsets.items():
            parts[name], origin = hub.hub_rows(self.repo, options, revision)
            revision = origin.commit
        train = hub.hub_rows(self.repo, self.train, revision)[0] if self.train else None
        return self._items(parts, origin, train, folders, None)

    def _items(
        self,
        parts: Mapping[str, Dataset],
        origin: Origin,
        train: Dataset | None,
        folders: Folders,
        folder: Path | None,
    ) -> BenchmarkData:
        from datasets import concatenate_datasets

        shaped = [self._select_columns(rows, origin) for rows in parts.values()]
        if len(parts) > 1:
            named = zip(shaped, parts, strict=True)
            shaped = [rows.add_column("subset", [name] * len(rows)) for rows, name in named]
        rows = shaped[0] if len(shaped) == 1 else concatenate_datasets(shaped)
        fitted = None if train is None else BenchmarkData(self._select_columns(train, origin), origin)
        return with_images(BenchmarkData(rows, origin, train=fitted), self.pool, folders, folder)

    def _select_columns(self, rows: Dataset, origin: Origin) -> Dataset:
        from hfcomp.data.loading import undecoded

        require(rows, self.columns.values(), origin.place)
        extra = {ours: theirs for ours, theirs in self.optional.items() if theirs in rows.column_names}
        columns = {**self.columns, **extra}
        # Other columns are dropped first: they may hold images of their own.
        rows = undecoded(rows).select_columns(list(dict.fromkeys(columns.values())))
        for ours, theirs in columns.items():
            if ours != theirs:
                rows = rows.rename_column(theirs, ours)
        return self.reshape(rows) if self.reshape else rows


@dataclass(frozen=True)
class RawFiles(Data):
    """A benchmark's own files as its authors give them.

    Attributes:
        required_files: files or folders that must all exist.
        read: a folder's rows, by the names of the column contract; an image is a file name of `pool`, else a path.
        layout: in words, for errors.
        pool: where images are.
        web: address of the folder that holds `required_files`, at a commit, where the authors' repository has them.
        repo: id of a dataset on the Hub that holds them, where it is not `web`.
        inside: the folder of `repo` that holds them.
        revision: of `repo`, where one could be confirmed.
    """

    required_files: tuple[str, ...]
    read: Callable[[Path], Sequence[Mapping[str, Any]]]
    layout: str
    pool: Pool | None = None
    web: str | None = None
    repo: str | None = None
    inside: str = "."
    revision: str | None = None

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        """The items, when the folder holds these files."""
        if not all((folder / name).exists() for name in self.required_files):
            return None
        return self._items(folder, Origin(str(folder)), folders)

    def remote(self, folders: Folders) -> BenchmarkData:
        """The items from the Hub or the authors' repository, images from their pool."""
        if self.web is None and self.repo is None:
            return super().remote(folders)
        from hfcomp.evaluation import hub

        if self.repo is not None:
            # Hub patterns do not support `./`.
            names = [os.path.normpath(f"{self.inside}/{name}") for name in self.required_files]
            folder = hub.repository(self.repo, [*names, *(f"{name}/*" for name in names)], self.revision)
            return self._items(folder / self.inside, Origin(self.repo, folder.name), folders)
        # URLs of raw files hold the commit, which results record.
        commit = next((part for part in self.web.split("/") if re.fullmatch("[0-9a-f]{40}", part)), None)
        return self._items(hub.downloaded(self.web, self.required_files), Origin(self.web, commit), folders)

    def _items(self, folder: Path, origin: Origin, folders: Folders) -> BenchmarkData:
        from datasets import Dataset

        rows = Dataset.from_list([dict(row) for row in self.read(folder)])
        return with_images(BenchmarkData(rows, origin), self.pool, folders, folder)


@dataclass(frozen=True)
class Adapted(Data):
    """A form of data with its items transformed before use.

    Attributes:
        data: the form.
        adapt: maps its items, the local data folders and the benchmark's own folder (if any) to the items to use.
    """

    data: Data
    adapt: Callable[[BenchmarkData, Folders, Path | None], BenchmarkData]

    @property
    def layout(self) -> str:
        """In words."""
        return self.data.layout

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        """The items, when the folder holds the form."""
        items = self.data.local(folder, folders)
        return None if items is None else self.adapt(items, folders, folder)

    def remote(self, folders: Folders) -> BenchmarkData:
        """The items from where the form has them."""
        return self.adapt(self.data.remote(folders), folders, None)


def with_images(
    items: BenchmarkData,
    pool: Pool | None,
    folders: Folders,
    beside: Path | None,
    columns: Sequence[str] = ("image",),
) -> BenchmarkData:
    """Items whose columns of images name files of a pool, with these columns replaced by the files' cells.

    The names in the first column become `image_id`, where the items have none.
    """
    if pool is None:
        return items
    names = [name for column in columns for name in items.rows[column][:]]
    cells, pooled = pool.cells(names, folders, beside)
    images = {columns[0]: cells}
    if len(columns) > 1:  # one after another, so that the pool is read once
        number = len(items.rows)
        images = {
            column: pick_cells(cells, range(place * number, (place + 1) * number))
            for place, column in enumerate(columns)
        }
    rows = items.rows if "image_id" in items.rows.column_names else items.rows.rename_column(columns[0], "image_id")
    rows = rows.remove_columns([name for name in columns[1:] if name in rows.column_names])
    return replace(items, origin=replace(items.origin, pools=(pooled,)), rows=rows, images=images)


def require(rows: Dataset, columns: Any, place: str) -> None:
    absent = [name for name in columns if name not in rows.column_names]
    if absent:
        raise ValueError(
            f"{place}: has no column {', '.join(map(repr, absent))}; it has "
            f"{', '.join(map(repr, rows.column_names))}. Its layout may have changed: pass a folder with the layout "
            "in docs/benchmarks.md."
        )
