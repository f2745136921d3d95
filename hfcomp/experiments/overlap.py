"""What a recipe does about training images that its evaluation scores: leaves them out, refuses, or goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset

from hfcomp.checksums import read_checked
from hfcomp.data.overlap import Overlap, ScoredImages, find_overlap
from hfcomp.data.overlap.policy import ALLOW, apply_policy, apply_to_stream, digest, overlap_facts
from hfcomp.distributed import on_main_process
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.experiments.session import Session
from hfcomp.writing import write_json

FILE = "overlap.json"
LOST_OVERLAP = "Put it back from a copy, or train anew with another --output_dir: which rows it left out is not known."


def without_scored_rows(
    rows: Dataset | IterableDataset,
    scored: Sequence[ScoredImages],
    config: ExperimentConfig,
    session: Session,
    *,
    tell: Callable[[str], None],
    key: dict[str, Any],
    columns: Sequence[str],
    progress: bool,
) -> Dataset | IterableDataset:
    """The rows to train on, as `overlap` says; all processes call it, and the main one alone looks at images.

    Args:
        rows: of training.
        scored: the images that the evaluation scores.
        config: of the experiment.
        session: receives what was found.
        tell: receives it in words, before an error too.
        key: identifies these rows among the rows of a run.
        columns: of images, those that the method and its controls read.
        progress: whether to show bars.

    Raises:
        ValueError: with `refuse` where rows overlap, or with `exclude` where all do.
    """
    facts: dict[str, Any] = {"policy": config.overlap}
    if not scored:
        note = "overlap: the evaluation scores scenes of the sandbox alone, which are held out of all training sets"
    elif isinstance(rows, IterableDataset):
        rows, note = apply_to_stream(rows, scored, config.overlap, columns)
    else:
        found = _found(rows, scored, config, session, key, columns, progress)
        if found.remark():
            tell(f"overlap: {found.remark()}")
        rows, note = apply_policy(rows, found, config.overlap)
        facts |= overlap_facts(found, config.overlap)
    name = digest(json.dumps([_training_fields(config), key], sort_keys=True, default=str))
    session.overlaps[name] = facts | {"note": note}
    tell(note)
    return rows


def _found(
    rows: Dataset,
    scored: Sequence[ScoredImages],
    config: ExperimentConfig,
    session: Session,
    key: dict[str, Any],
    columns: Sequence[str],
    progress: bool,
) -> Overlap:
    """What is found, once for all rows of a sweep that show the same images."""
    # elsewhere a seed decides texts alone
    drawn = config.dataset == SANDBOX or config.keyword_captions_only
    images = key if drawn else {"columns": key.get("columns")}
    name = json.dumps([_training_fields(config), images, list(columns), len(rows)], sort_keys=True, default=str)
    before, found = session.searched.get(name, (None, None))
    if before is not scored:
        looks = config.overlap != ALLOW
        found = on_main_process(lambda: find_overlap(rows, scored, columns=columns, looks=looks, progress=progress))
        session.searched[name] = scored, found
    return found


def _training_fields(config: ExperimentConfig) -> dict[str, Any]:
    return {name: value for name, value in config.model_dump().items() if not name.startswith("evaluation")}


def check_same_rows(folder: Path, session: Session) -> None:
    """Checks that a run which goes on leaves out the rows that it left out before; another evaluation may not.

    Args:
        folder: of the run, with `overlap.json` if it was begun before.
        session: with what was found now.

    Raises:
        ValueError: when the earlier part of the run trained on other rows.
    """
    path = folder / FILE

    def check() -> None:
        before = read_checked(path, LOST_OVERLAP) if path.is_file() else {}
        for key, facts in session.overlaps.items():
            if key in before and _left_out(before[key]) != _left_out(facts):
                raise ValueError(
                    f"{folder}: this run was begun on other rows than are left now, as the evaluation or its data "
                    f"changed. Before: {before[key]['note']}. Now: {facts['note']}. Give the evaluation of before, or "
                    "another --output_dir."
                )
        write_json(path, {**before, **session.overlaps})

    session.on_main(check)


def _left_out(facts: dict[str, Any]) -> Any:
    return facts["rows"] if facts.get("left_out_rows") else None
