"""What a recipe does about training images that its evaluation scores: leaves them out, refuses, or goes on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset, ReadInstruction

from hfcomp.checksums import read_checked
from hfcomp.data.overlap import FIX, Overlap, ScoredImages, find_overlap, known_names, without_known_images
from hfcomp.distributed import on_main_process
from hfcomp.experiments.experiment_config import ALLOW, EXCLUDE, REFUSE, SANDBOX, ExperimentConfig
from hfcomp.experiments.session import Session
from hfcomp.writing import write_json

FILE = "overlap.json"
LOST_OVERLAP = "Put it back from a copy, or train anew with another --output_dir: which rows it left out is not known."
UNSURE_FIX = (
    "Look at the first: where they are copies of scored images, remove such rows from the set, which "
    "hfcomp.data.overlap.find_overlap gives as unsure; where they are not, --overlap allow compares by name and file "
    "alone, and trains on those too."
)
# Rows of a split whose size is not known; slices by per cent do not depend on it.
ANY_SIZE = 10**9


def check_own_split(config: ExperimentConfig, tell: Callable[[str], None]) -> None:
    """Refuses to score on the rows of training, for `evaluation: own`.

    Raises:
        ValueError: when data set and split are those of training, or slices of one split overlap.
    """
    source = config.evaluation_dataset or config.dataset
    if config.evaluation != "own" or config.dataset == SANDBOX or _place(source) != _place(config.dataset):
        return
    folder = Path(source)
    one_split = folder.is_file() or (folder / "state.json").is_file()  # whose rows are asked for by any name
    if not _share_rows(config.dataset_split, config.evaluation_split, one_split):
        return
    found = (
        f"evaluation: own: the rows of {source} ({config.evaluation_split}) are trained on ({config.dataset_split})"
        + (", as it holds one split" if one_split else "")
    )
    if config.overlap == ALLOW:
        return tell(f"{found}, as overlap: allow says")
    ways = ["another set with --evaluation_dataset"]
    if not config.streaming:  # of a stream no slice can be read
        ways.insert(0, "slices that share no row (--dataset_split 'train[:90%]' --evaluation_split 'train[90%:]')")
    if not one_split:
        ways.insert(0, "another split with --evaluation_split")
    raise ValueError(f"{found}. Score {' or '.join(ways)}; --overlap allow scores the rows of training on purpose.")


def _place(name: str) -> str:
    return os.path.realpath(name) if os.path.exists(name) else name


def _share_rows(split: str, other: str, one_split: bool) -> bool:
    parts = []
    for text in (split, other):
        if text.partition("[")[0].strip() == "all":
            return True
        names = {part.partition("[")[0].strip() for part in text.split("+")}
        parts.append(ReadInstruction.from_spec(text).to_absolute(dict.fromkeys(names, ANY_SIZE)))
    return any(
        (one_split or one.splitname == two.splitname) and max(one.from_, two.from_) < min(one.to, two.to)
        for one in parts[0]
        for two in parts[1]
    )


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
        rows, note = _stream(rows, scored, config.overlap, columns)
    else:
        found = _found(rows, scored, config, session, key, columns, progress)
        if found.remark():
            tell(f"overlap: {found.remark()}")
        rows, note = _decided(rows, found, config.overlap)
        facts |= _facts(found, config.overlap)
    name = _digest(json.dumps([_training_fields(config), key], sort_keys=True, default=str))
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


def _decided(rows: Dataset, found: Overlap, policy: str) -> tuple[Dataset, str]:
    doubt, note = found.doubt(), f"overlap: {found}"
    if policy == REFUSE and (len(found.rows) or doubt):
        raise ValueError(f"overlap: refuse: {found}{f'; {doubt}' if doubt else ''}. {FIX}")
    if len(found.rows) and policy == ALLOW:
        return rows, f"{note}; they are trained on, as overlap: allow says"
    if len(found.rows):
        kept = found.others()
        if not len(kept):
            raise ValueError(
                f"overlap: exclude: {found}. Nothing is left to train on. Choose another dataset, dataset_filter or "
                "evaluation, or pass --overlap allow to score on images of training."
            )
        rows, note = rows.select(kept), f"{note}; they are left out"
    return rows, f"{note}. WARNING: {doubt}: they are TRAINED ON. {UNSURE_FIX}" if doubt else note


def _stream(
    rows: IterableDataset, scored: Sequence[ScoredImages], policy: str, columns: Sequence[str]
) -> tuple[IterableDataset, str]:
    images = f"{sum(len(one.cells) for one in scored):,} images of the evaluation"
    if policy == ALLOW:
        return rows, f"overlap: allow: the streamed rows are not compared with the {images}"
    fate = "are refused" if policy == REFUSE else "are left out and counted as left_out_rows in the log"
    return without_known_images(rows, scored, columns=columns, refuse=policy == REFUSE), (
        f"overlap: rows are compared as they are read: those that share a name or a file with one of the {images} "
        f"({len(known_names(scored)):,} names) {fate}; other copies of a photograph, saved or resized anew, are not "
        "looked for in a stream"
    )


def _facts(found: Overlap, policy: str) -> dict[str, Any]:
    return {
        "training_rows": found.total,
        "overlapping_rows": len(found.rows),
        "left_out_rows": len(found.rows) if policy == EXCLUDE else 0,
        "scored_images": found.scored,
        "scored_images_in_training": found.shown,
        "rows_by": found.ways,
        "unreadable_images": len(found.unreadable),
        "unsure_rows": len(found.unsure),
        "scored_images_alike": found.alike,
        "rows": _digest(found.rows.tobytes()),
    }


def _training_fields(config: ExperimentConfig) -> dict[str, Any]:
    return {name: value for name, value in config.model_dump().items() if not name.startswith("evaluation")}


def _digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


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
