"""Overlap policy: handles training rows that show scored images, and records the result for resumed runs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset, ReadInstruction

from hfcomp.checksums import read_checked
from hfcomp.data.overlap.guard import FIX, Overlap, find_overlap, known_names, without_known_images
from hfcomp.data.overlap.image_columns import ScoredImages
from hfcomp.distributed import run_on_main_process
from hfcomp.writing import write_json

EXCLUDE, REFUSE, ALLOW = "exclude", "refuse", "allow"
UNSURE_FIX = (
    "Check the first ones. If they are copies of scored images, remove these rows from the dataset; "
    "hfcomp.data.overlap.find_overlap returns them as unsure. If they are not, use --overlap allow, which compares "
    "only by name and file and trains on matching rows too."
)
# Assumed number of rows of a split. Percentage slices do not depend on it.
ANY_SIZE = 10**9


def check_own_split(
    training: str,
    training_split: str,
    scored: str,
    scored_split: str,
    *,
    allow: bool,
    streaming: bool,
    log: Callable[[str], None],
) -> None:
    """Raises ValueError if training rows would be scored, because both use one split or overlapping slices of it."""
    if _place(scored) != _place(training):
        return
    folder = Path(scored)
    one_split = folder.is_file() or (folder / "state.json").is_file()  # which returns its rows for any split name
    if not _share_rows(training_split, scored_split, one_split):
        return
    reason = ", because it has only one split" if one_split else ""
    problem = f"evaluation: own: {scored} ({scored_split}) would score training rows ({training_split}){reason}"
    if allow:
        return log(f"{problem}; overlap: allow permits this")
    ways = ["another set with --evaluation_dataset"]
    if not streaming:
        ways.insert(0, "slices that share no row (--dataset_split 'train[:90%]' --evaluation_split 'train[90%:]')")
    if not one_split:
        ways.insert(0, "another split with --evaluation_split")
    split = f" --evaluation_split {training_split}" if one_split else ""
    raise ValueError(
        f"{problem}. Score {' or '.join(ways)}, or pass --overlap allow{split} to score training rows on purpose."
    )


def _place(name: str) -> str:
    return os.path.realpath(name) if os.path.exists(name) else name


def _share_rows(split: str, other: str, one_split: bool) -> bool:
    # Slices are compared as ranges of rows of a dataset with an assumed size, so no rows are loaded.
    parts = []
    for text in (split, other):
        if text.partition("[")[0].strip() == "all":
            return True
        names = {part.partition("[")[0].strip() for part in text.split("+")}
        parts.append(ReadInstruction.from_spec(text).to_absolute(dict.fromkeys(names, ANY_SIZE)))
    return any(
        (one_split or first.splitname == second.splitname)
        and max(first.from_, second.from_) < min(first.to, second.to)
        for first in parts[0]
        for second in parts[1]
    )


def apply_policy(rows: Dataset, overlap: Overlap, policy: str) -> tuple[Dataset, str]:
    """Returns the rows to train on, and a line for the log."""
    doubt, note = overlap.doubt(), f"overlap: {overlap}"
    if policy == REFUSE and (len(overlap.rows) or doubt):
        raise ValueError(f"overlap: {overlap}{f'; {doubt}' if doubt else ''}, and overlap is set to refuse. {FIX}")
    if len(overlap.rows) and policy == ALLOW:
        return rows, f"{note}; overlap: allow trains on them"
    if len(overlap.rows):
        kept = overlap.others()
        if not len(kept):
            raise ValueError(
                f"overlap: {overlap}, and without these rows, none is left to train on. Choose another dataset, "
                "dataset_filter or evaluation, or pass --overlap allow to score training images."
            )
        rows, note = rows.select(kept), f"{note}; they are left out"
    return rows, f"{note}. WARNING: {doubt}; training INCLUDES them. {UNSURE_FIX}" if doubt else note


def apply_to_stream(
    rows: IterableDataset, scored: Sequence[ScoredImages], policy: str, columns: Sequence[str]
) -> tuple[IterableDataset, str]:
    images = f"{sum(len(column.cells) for column in scored):,} evaluation images"
    if policy == ALLOW:
        return rows, f"overlap: allow: the streamed rows are not compared with the {images}"
    effect = "raise an error" if policy == REFUSE else "are left out and counted as left_out_rows in the log"
    return without_known_images(rows, scored, columns=columns, refuse=policy == REFUSE), (
        f"overlap: rows are compared while they are read: rows that share a name or a file with one of the {images} "
        f"({len(known_names(scored)):,} names) {effect}; re-saved or resized copies of a photograph are not detected "
        "in a stream"
    )


def overlap_facts(overlap: Overlap, policy: str) -> dict[str, Any]:
    return {
        "training_rows": overlap.total,
        "overlapping_rows": len(overlap.rows),
        "left_out_rows": len(overlap.rows) if policy == EXCLUDE else 0,
        "scored_images": overlap.scored,
        "scored_images_in_training": overlap.shown,
        "rows_by": overlap.ways,
        "unreadable_images": len(overlap.unreadable),
        "unsure_rows": len(overlap.unsure),
        "scored_images_alike": overlap.alike,
        "rows": digest(overlap.rows.tobytes()),
    }


def digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


FILE = "overlap.json"
LOST = "Restore it from a backup, or start a new run with another --output_dir: the excluded rows are unknown."


@dataclass
class OverlapRecord:
    """Overlap results, by keys that determine the rows.

    `facts` go into the report and `overlap.json`. `compared` contains the results of image comparisons, by keys that
    determine the rows' images: rows that differ only in their texts are not compared again.
    """

    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    compared: dict[str, Overlap] = field(default_factory=dict)

    def without_scored(
        self,
        rows: Dataset | IterableDataset,
        scored: Sequence[ScoredImages],
        *,
        policy: str,
        columns: Sequence[str],
        key: Sequence[Any],
        images_key: Sequence[Any],
        log: Callable[[str], None],
        progress: bool,
        part: str = "",
    ) -> Dataset | IterableDataset:
        """Returns the rows to train on under a policy. All processes call it, but only the main one reads images.

        Args:
            rows: Training rows.
            scored: Images that the evaluation scores.
            policy: `EXCLUDE`, `REFUSE` or `ALLOW`.
            columns: Image columns that training reads.
            key: JSON values that determine the rows.
            images_key: JSON values that determine the rows' images.
            log: Receives the result, once it is known that training will start.
            progress: Whether to show progress bars.
            part: Name of the rows in the log, if they are not the training set.
        """
        facts: dict[str, Any] = {"policy": policy}
        if not scored:
            note = "overlap: the evaluation uses only sandbox scenes, which are held out of all training sets"
        elif isinstance(rows, IterableDataset):
            rows, note = apply_to_stream(rows, scored, policy, columns)
        else:
            place = _text(*images_key, columns, len(rows), [(images.name, len(images.cells)) for images in scored])
            if place not in self.compared:
                how = {"columns": columns, "looks": policy != ALLOW, "progress": progress}
                self.compared[place] = run_on_main_process(lambda: find_overlap(rows, scored, **how))
            overlap = self.compared[place]
            if overlap.remark():
                log(f"overlap: {part}{': ' * bool(part)}{overlap.remark()}")
            rows, note = apply_policy(rows, overlap, policy)
            facts |= overlap_facts(overlap, policy)
        note = note.replace("overlap: ", f"overlap: {part}: ", 1) if part else note
        self.facts[digest(_text(*key))] = facts | {"note": note}
        log(note)
        return rows

    def check_and_write(self, folder: Path) -> None:
        """Raises an error if a resumed run would use different rows than before, and writes `overlap.json`."""
        # A changed evaluation may score other images and therefore exclude other rows. A resumed run skips finished
        # batches by number, and with different rows these would be different batches.
        path = folder / FILE

        def check() -> None:
            before = read_checked(path, LOST) if path.is_file() else {}
            for key, facts in self.facts.items():
                if key in before and _left_out_digest(before[key]) != _left_out_digest(facts):
                    raise ValueError(
                        f"{folder}: the evaluation or its data has changed since this run began, so different "
                        f"training rows are excluded. Before: {before[key]['note']}. Now: {facts['note']}. Use the "
                        "previous evaluation, or another --output_dir."
                    )
            write_json(path, {**before, **self.facts})

        run_on_main_process(check)


def _left_out_digest(facts: dict[str, Any]) -> Any:
    return facts["rows"] if facts.get("left_out_rows") else None


def _text(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True, default=str)
