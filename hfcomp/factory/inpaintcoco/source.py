"""Builds InpaintCOCO from an annotation project or from the published dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datasets import Dataset, List, Value

from hfcomp.data.annotations.masks import FEATHER, LEAST_CHANGE
from hfcomp.data.columns import require_columns
from hfcomp.data.loading import load_training_set, undecoded
from hfcomp.data.publishing import LICENSE, without_local_paths
from hfcomp.factory.build import DatasetBuild
from hfcomp.factory.inpaintcoco.checks import CHANGED_OUTSIDE, PairCheck, check_pairs, pseudonyms
from hfcomp.factory.inpaintcoco.options import FLAGGED_PAIRS, PAIRS, InpaintCocoOptions
from hfcomp.factory.inpaintcoco.project_rows import SOURCE, project_inputs
from hfcomp.factory.shards import COUNTS, SET_ASIDE, Batch, Stage
from hfcomp.factory.sources import BuildInputs, Log, kept_columns, output_features
from hfcomp.reporting.format import count_text

FLAGS, OUTSIDE = "flags", "changed_outside"
REQUIRED = ("concept", "coco_caption", "coco_image", "inpaint_caption", "inpaint_image", "mask")
WORKER, DETAILS, IMAGE_LICENSE = "worker", "coco_details", "image_license"
ADDED = {FLAGS: List(Value("string")), OUTSIDE: Value("float64")}


def published_inputs(options: InpaintCocoOptions, log: Log) -> BuildInputs:
    """The rows of a dataset in the layout of phiyodr/InpaintCOCO."""
    dataset = undecoded(load_training_set(options.source, split=options.split, config=options.config))
    log(f"{count_text(len(dataset), 'row')} from {options.source}")
    require_columns(dataset, REQUIRED, needed_by="inpaintcoco", rename="dataset.rename_column(..., {0!r})")
    dataset = dataset.select_columns(list(dict.fromkeys([*REQUIRED, *_written_columns(dataset, options.columns)])))
    dataset = _select_rows(dataset, options)
    dataset = _add_facts(dataset, options.source)
    features = output_features(dataset, ADDED)
    facts = {"feather": FEATHER, "least_change": LEAST_CHANGE}
    reads = [*REQUIRED]
    return BuildInputs(dataset, [Stage("flags", make_flags, {}, facts)], features, reads, "test", ())


def _written_columns(dataset: Dataset, wanted: str | None) -> list[str]:
    """The columns to write, without those of an earlier build."""
    needed = [name for name in (WORKER, DETAILS) if name in dataset.column_names]
    return [name for name in [*needed, *kept_columns(dataset, wanted)] if name not in ADDED]


def _select_rows(dataset: Dataset, options: InpaintCocoOptions) -> Dataset:
    concepts = dataset["concept"][:]
    unknown = [name for name in options.concepts if name not in concepts]
    if unknown:
        known = ", ".join(sorted(map(str, {*concepts})))
        raise ValueError(f"--concepts: found {unknown[0]!r}; {options.source} has {known}.")
    rows = [row for row, concept in enumerate(concepts) if not options.concepts or concept in options.concepts]
    return dataset.select(rows[: options.limit])


def _add_facts(dataset: Dataset, name: str) -> Dataset:
    """Adds columns for the image's license and the source, and replaces workers by pseudonyms."""
    added: dict[str, list[str | None]] = {}
    if WORKER in dataset.column_names:
        workers = [None if worker is None else str(worker) for worker in dataset[WORKER]]
        names = pseudonyms(workers)
        added[WORKER] = [names.get(worker) if worker else None for worker in workers]
    if LICENSE not in dataset.column_names and DETAILS in dataset.column_names:
        added[LICENSE] = [(details or {}).get(IMAGE_LICENSE) for details in dataset[DETAILS]]
    if SOURCE not in dataset.column_names:
        added[SOURCE] = [without_local_paths(name)] * len(dataset)
    # Replaced columns move to the end, so the order is restored afterwards.
    order = list(dict.fromkeys([*dataset.column_names, *added]))
    dataset = dataset.remove_columns([column for column in added if column in dataset.column_names])
    for column, values in added.items():
        dataset = dataset.add_column(column, values, feature=Value("string"))
    return dataset.select_columns(order)


def make_flags() -> Callable[[Batch], Batch]:
    """The stage that flags problems of each row. Only rows without a readable image are set aside."""

    def flags(batch: Batch) -> Batch:
        rest, checked = check_pairs(batch)
        return rest | {
            # A published dataset is kept as it is, so a row with problems stays and gets flags.
            FLAGS: [list(check.problems) for _, check in checked],
            OUTSIDE: [check.outside for _, check in checked],
            SET_ASIDE: [check.unreadable for _, check in checked],
            COUNTS: [{} if check.unreadable else _counts(row, check) for row, check in checked],
        }

    return flags


def _counts(row: dict[str, Any], check: PairCheck) -> dict[str, int]:
    flags = [*check.problems, *([CHANGED_OUTSIDE] if check.outside else [])]
    return {PAIRS(row["concept"]): 1} | {FLAGGED_PAIRS(name): 1 for name in flags}


class InpaintCocoBuild(DatasetBuild):
    """Builds InpaintCOCO from an annotation project or from the published dataset."""

    def inputs(self) -> BuildInputs:
        """The rows of an annotation project, or of the published dataset."""
        read = project_inputs if self.options.is_project else published_inputs
        return read(self.options, self.log)
