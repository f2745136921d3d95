"""Datasets built in several steps, each from the previous rows; texts are joined with the images of the source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from datasets import Dataset, concatenate_datasets
from numpy.typing import NDArray

from hfcomp.data.built_sets.files import CHAIN, COMMANDS, STEPS_FOLDER, StepNames, is_build, step_names
from hfcomp.data.loading import load_training_set
from hfcomp.factory.build import BuiltSet, DatasetBuild
from hfcomp.factory.manifest import reject_other_files
from hfcomp.factory.runner import Build
from hfcomp.factory.shards import SOURCE_ROW
from hfcomp.factory.sources import BuildInputs, check_local_files, read_captioned_rows
from hfcomp.writing import LOCK_FILE, locked, remove_unfinished, write_json


class Chain(DatasetBuild):
    """Builds a dataset in several steps. Each step is a build that resumes where it was killed.

    A subclass names its steps and their folders, and runs them. Each step has a folder in `steps/`, except the steps
    that write the dataset's own rows. Steps may run on different machines that share the folder.
    """

    names: ClassVar[StepNames]
    """The steps that are builds, as recorded in the dataset's folder."""
    folders: ClassVar[Sequence[Path]]
    """The folders of all possible builds, relative to the dataset's folder."""
    always_kept: ClassVar[Sequence[str]] = ()
    """Source columns that are kept if they exist, whatever `--columns` names."""
    source: Dataset
    """The rows to build from; `build` reads them."""

    @staticmethod
    def is_old(column: str) -> bool:
        """Whether to drop a source column: a step writes one of that name, or it describes an earlier dataset."""
        return column == SOURCE_ROW

    def run(self) -> BuiltSet:
        """Runs the requested steps, and writes the card when the last step is finished.

        Missing packages and models are reported first, because a later step may start only after hours.
        """
        raise NotImplementedError

    def build(self) -> BuiltSet:
        options = self.options
        self._check_output(options.output)
        needed = {"needed": ["image"], "needed_by": options.what, "always_kept": self.always_kept}
        # The source is read before anything is written to the folder.
        self.source = read_captioned_rows(options, self.log, is_old=self.is_old, **needed)
        allow, columns = options.allow_outside_files, self.source.column_names
        check_local_files(self.source, columns, options.source, allow_outside=allow, log=self.log)
        with locked(options.output):
            return self.run()

    def run_step(self, place: Path | str, title: str, inputs: BuildInputs, *, uses_gpu: bool = False) -> Build:
        """Runs one build; see `run_stages`.

        Args:
            place: Folder of the build, relative to the dataset's folder.
            title: Start of the line to log.
            uses_gpu: Whether a model runs in the workers. On Ray, steps without a model reserve no GPU.
        """
        options = self.options
        self.log(f"{title} {len(inputs.dataset):,} rows")
        steps = options.output / STEPS_FOLDER
        remove_unfinished(steps)
        if self._needs_names(options.output):
            # Written before any rows, because it shows which steps an unfinished dataset lacks.
            write_json(steps / CHAIN, self.names._asdict())
        gpus = 0 if options.executor == "ray" and not uses_gpu else options.gpus_per_worker
        return self.run_stages(inputs, options.output / place, gpus_per_worker=gpus)

    @classmethod
    def _needs_names(cls, output: Path) -> bool:
        """Whether to write the names of the steps."""
        # A dataset from an earlier hfcomp may lack the file with the names, and resuming it must not change its files.
        is_begun = any(is_build(output / place) for place in cls.folders)
        return (output / STEPS_FOLDER / CHAIN).is_file() or not is_begun or step_names(output) != cls.names

    @classmethod
    def _check_output(cls, output: Path) -> None:
        """Raises ValueError if the folder contains files of the user, which the dataset's files could replace."""
        own_steps = {place.parts[1] for place in cls.folders if place.parts[0] == STEPS_FOLDER}
        inside = sorted({path.name for path in (output / STEPS_FOLDER).glob("*")} - own_steps)
        others = [f"{STEPS_FOLDER}/{name}" for name in inside if not name.startswith((CHAIN, COMMANDS))]
        if output.is_dir() and not any(is_build(output / place) for place in cls.folders):
            others += sorted({path.name for path in output.iterdir()} - {LOCK_FILE, STEPS_FOLDER})
        reject_other_files(output, others)


def join_texts(source: Dataset, folder: Path | str) -> Dataset:
    """Joins the rows of a finished build with the other columns of its source, such as images, which are not copied.

    The build's texts are copied once into the cache of `datasets`, in the order of the source. A build from the result
    detects changed texts; see `hfcomp.factory.runner.fingerprint`.

    Args:
        source: Source of the build, or of the first build in a chain. It is memory-mapped, so its images stay on disk.
        folder: Folder of the build. It has the column `source_row`, with each row of the source at most once.

    Returns:
        The rows of the build in their order. If both have a column, the build's is used. The result keeps
        `source_row`, which the next build of the chain passes on.
    """
    texts = load_training_set(str(folder))
    if SOURCE_ROW not in texts.column_names:
        raise ValueError(
            f"{folder} has no column {SOURCE_ROW!r} with the row numbers of the source. Build it with {SOURCE_ROW!r} "
            "among its features."
        )
    numbers = texts.with_format("numpy")[SOURCE_ROW][:]
    _check_numbers(numbers, len(source), folder)
    return join_columns(source, texts, numbers)


def join_columns(source: Dataset, texts: Dataset, numbers: NDArray[np.int64]) -> Dataset:
    """Joins rows of texts with the other columns of a source, such as images, which are not copied.

    Args:
        source: Memory-mapped source; its images stay on disk.
        texts: The rows to join. If both have a column, that of `texts` is used.
        numbers: Source row of each row of texts, each at most once.
    """
    # If the source has an index mapping, for example after a filter, `datasets` would copy the images.
    base, mapping = Dataset(source.data, info=source.info.copy(), split=source.split), source._indices
    rows = numbers if mapping is None else mapping.column(0).to_numpy()[numbers]
    places = np.zeros(len(base), np.int64)  # values of rows without texts are never read
    places[rows] = np.arange(len(rows))
    if (places[rows] != np.arange(len(rows))).any():
        raise ValueError("the source contains a row twice. Pass a source whose `select` does not repeat rows.")
    # Texts are small, so they are copied into the order of the source; images stay on disk. Both then have the same
    # rows, and a single selection serves all columns.
    ordered = texts.select(places).flatten_indices()
    others = base.select_columns([name for name in base.column_names if name not in texts.column_names])
    return concatenate_datasets([others, ordered], axis=1).select(rows)


def _check_numbers(numbers: np.ndarray, source_rows: int, folder: Path | str) -> None:
    if not len(numbers):
        raise ValueError(f"{folder} has no rows.")
    outside = numbers[(numbers < 0) | (numbers >= source_rows)]
    if len(outside):
        raise ValueError(
            f"{folder} was built from another source: it refers to row {outside[-1]:,}, but this source has "
            f"{source_rows:,} rows."
        )
    rows, times = np.unique(numbers, return_counts=True)
    if times.max() > 1:
        raise ValueError(
            f"{folder} contains row {rows[times.argmax()]:,} of its source {times.max()} times; expected at most once."
        )
