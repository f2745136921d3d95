"""Sources of a benchmark's rows: its authors' files, a folder in the Hub's layout, or the Hub."""

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
    """Reads a benchmark's items from its folder, if any, otherwise from the Hub or its authors' repository.

    Raises:
        Unavailable: If the data is missing; has the reason and how to get the data.
        ValueError: If the folder contains none of the forms, or one with a mistake.
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
        # No fallback to the Hub: the user named this folder and would get the numbers of other data.
        raise ValueError(f"{benchmark.name}: {folder} does not contain its data. Expected {forms}. {benchmark.obtain}")
    # Each form may fail for a different reason, and all reasons are reported.
    reasons, ways = [], [benchmark.obtain]
    for form in benchmark.data:
        try:
            return form.remote(folders)
        except Unavailable as error:
            reasons.append(error.reason)
            ways.append(error.how_to_fix)
    ways.append(f"Or pass --data {benchmark.folder or benchmark.name}=DIR, a folder with {forms}.")
    # Several forms may fail for the same reason, which is listed once.
    reason = " ".join(dict.fromkeys(filter(None, reasons)))
    raise Unavailable(reason or "Not on the Hub in a readable form.", " ".join(filter(None, ways)))


@dataclass(frozen=True)
class Pool:
    """A set of images that several benchmarks share, by file name.

    Attributes:
        name: Name of the folder with the images.
        repo: Hub dataset with the images; `None` if there is none.
        image: Image column of the dataset.
        key: Column of file names.
        revision: Commit of `repo`, if one could be confirmed.
        data_files: Files of `split`, if the other files should not be downloaded.
        obtain: How to get the folder.
        parts: Subfolders that may also contain images.
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
        """Returns the images with these names, `None` for a missing one.

        Raises:
            Unavailable: If neither such a folder nor the Hub has them, unless texts suffice.
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
            hub,  # imports libraries for seconds, which listing benchmarks does not need
        )

        # Without `data_files`, the files of all splits would be downloaded.
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
    """A Hub dataset whose files need no loading script, or a folder in the same layout.

    Attributes:
        repo: Hub id.
        columns: Contract name to the dataset's own column name.
        subsets: Arguments of `load_dataset` by subset: `name`, `split`, and `data_files` by split if the files of
            other splits should not be downloaded or the folder has files of another kind.
        reshape: Function applied to the renamed rows of each subset.
        pool: Source of the images, if they are not in the rows; `columns` then maps `image` to the file name column.
        revision: Commit, if one could be confirmed.
        train: Arguments of `load_dataset` for the rows that a probe is fitted on.
        files: Pattern of the files in a folder of that layout; "*.tar" for WebDataset.
        optional: Like `columns`, for columns that the dataset may lack.
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
        return f"the files of {self.repo} on the Hub ({self.files})"

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:
        """Reads the items if the folder contains such files."""
        if not folder.is_dir() or next(folder.rglob(self.files), None) is None:
            return None
        # A truncated archive would give fewer rows without an error.
        if self.files == "*.tar":
            self._check_archives(folder)
        parts = {name: _load_folder(folder, options) for name, options in self.subsets.items()}
        train = _load_folder(folder, self.train) if self.train else None
        return self._items(parts, Origin(str(folder)), train, folders, folder)

    def _check_archives(self, folder: Path) -> None:
        patterns = {pattern for options in self.subsets.values() for pattern in options["data_files"].values()}
        archives = sorted(path for pattern in patterns for path in folder.glob(pattern))
        # The file that records the number of archives shows whether a whole archive is missing.
        for place in sorted({path.parent for path in archives if (path.parent / COUNT).is_file()}):
            numbered_archives(place)
        for path in archives:
            check_archive(path)

    def remote(self, folders: Folders) -> BenchmarkData:
        """Reads the items from the Hub."""
        from hfcomp.evaluation import hub

        origin, parts, revision = None, {}, self.revision
        # The first part fixes the commit: a push between two parts would otherwise mix two versions.
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
        # Other columns are dropped first because they may contain images of their own.
        rows = undecoded(rows).select_columns(list(dict.fromkeys(columns.values())))
        for ours, theirs in columns.items():
            if ours != theirs:
                rows = rows.rename_column(theirs, ours)
        return self.reshape(rows) if self.reshape else rows


@dataclass(frozen=True)
class RawFiles(Data):
    """A benchmark's original files, as its authors publish them.

    Attributes:
        required_files: Files or folders that must all exist.
        read: Function that reads a folder's rows under the contract's column names; an image is a file name of
            `pool`, otherwise a path.
        layout: Description of the layout for errors.
        pool: Source of the images.
        web: Address of the folder with `required_files` at a commit, if the authors' repository has them.
        repo: Hub id of a dataset that contains them, if `web` is not set.
        inside: Folder of `repo` that contains them.
        revision: Commit of `repo`, if one could be confirmed.
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
        """Reads the items if the folder contains these files."""
        if not all((folder / name).exists() for name in self.required_files):
            return None
        return self._items(folder, Origin(str(folder)), folders)

    def remote(self, folders: Folders) -> BenchmarkData:
        """Reads the items from the Hub or the authors' repository, and images from their pool."""
        if self.web is None and self.repo is None:
            return super().remote(folders)
        from hfcomp.evaluation import hub

        if self.repo is not None:
            # Hub patterns do not support `./`.
            names = [os.path.normpath(f"{self.inside}/{name}") for name in self.required_files]
            folder = hub.repository(self.repo, [*names, *(f"{name}/*" for name in names)], self.revision)
            return self._items(folder / self.inside, Origin(self.repo, folder.name), folders)
        # URLs of raw files contain the commit, which results record.
        commit = next((part for part in self.web.split("/") if re.fullmatch("[0-9a-f]{40}", part)), None)
        return self._items(hub.download_files(self.web, self.required_files), Origin(self.web, commit), folders)

    def _items(self, folder: Path, origin: Origin, folders: Folders) -> BenchmarkData:
        from datasets import Dataset

        rows = Dataset.from_list([dict(row) for row in self.read(folder)])
        return with_images(BenchmarkData(rows, origin), self.pool, folders, folder)


@dataclass(frozen=True)
class Adapted(Data):
    """A form of data whose items are transformed before use.

    Attributes:
        data: Form of the data.
        adapt: Function of the items, the local data folders and the benchmark's own folder (if any) that returns the
            items to use.
    """

    data: Data
    adapt: Callable[[BenchmarkData, Folders, Path | None], BenchmarkData]

    @property
    def layout(self) -> str:
        return self.data.layout

    def local(self, folder: Path, folders: Folders) -> BenchmarkData | None:

        items = self.data.local(folder, folders)
        return None if items is None else self.adapt(items, folders, folder)

    def remote(self, folders: Folders) -> BenchmarkData:

        return self.adapt(self.data.remote(folders), folders, None)


def with_images(
    items: BenchmarkData, pool: Pool | None, folders: Folders, beside: Path | None, columns: Sequence[str] = ("image",)
) -> BenchmarkData:
    """Replaces image columns that name files of a pool with the files' cells.

    The names in the first column become `image_id` if the items have none.
    """
    if pool is None:
        return items
    names = [name for column in columns for name in items.rows[column][:]]
    cells, pooled = pool.cells(names, folders, beside)
    images = {columns[0]: cells}
    if len(columns) > 1:  # all names in one list, so the pool is read once
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
            f"{', '.join(map(repr, rows.column_names))}. Its layout may have changed. Pass a folder with the layout "
            "in docs/benchmarks.md."
        )
