"""What is done about training rows that show scored images, and the record of it that a resumed run is held to."""

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
    "Look at the first: where they are copies of scored images, remove such rows from the set, which "
    "hfcomp.data.overlap.find_overlap gives as unsure; where they are not, --overlap allow compares by name and file "
    "alone, and trains on those too."
)
# Assumed number of rows for a split of unknown size. Percentage slices do not depend on it.
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
    """Raises ValueError if rows of training would be scored: those of one split, or of slices of it that overlap."""
    if _place(scored) != _place(training):
        return
    folder = Path(scored)
    one_split = folder.is_file() or (folder / "state.json").is_file()  # whose rows are asked for by any name
    if not _share_rows(training_split, scored_split, one_split):
        return
    found = f"evaluation: own: the rows of {scored} ({scored_split}) are trained on ({training_split})"
    found += ", as it holds one split" if one_split else ""
    if allow:
        return log(f"{found}, as overlap: allow says")
    ways = ["another set with --evaluation_dataset"]
    if not streaming:
        ways.insert(0, "slices that share no row (--dataset_split 'train[:90%]' --evaluation_split 'train[90%:]')")
    if not one_split:
        ways.insert(0, "another split with --evaluation_split")
    split = f" --evaluation_split {training_split}" if one_split else ""
    raise ValueError(
        f"{found}. Score {' or '.join(ways)}; --overlap allow{split} scores the rows of training on purpose."
    )


def _place(name: str) -> str:
    return os.path.realpath(name) if os.path.exists(name) else name


def _share_rows(split: str, other: str, one_split: bool) -> bool:
    # Slices are compared as ranges of rows of a set with an assumed size, so no row must be loaded.
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


def apply_policy(rows: Dataset, found: Overlap, policy: str) -> tuple[Dataset, str]:
    """The rows to train on, and the line for the log."""
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


def apply_to_stream(
    rows: IterableDataset, scored: Sequence[ScoredImages], policy: str, columns: Sequence[str]
) -> tuple[IterableDataset, str]:
    images = f"{sum(len(one.cells) for one in scored):,} images of the evaluation"
    if policy == ALLOW:
        return rows, f"overlap: allow: the streamed rows are not compared with the {images}"
    fate = "are refused" if policy == REFUSE else "are left out and counted as left_out_rows in the log"
    return without_known_images(rows, scored, columns=columns, refuse=policy == REFUSE), (
        f"overlap: rows are compared as they are read: those that share a name or a file with one of the {images} "
        f"({len(known_names(scored)):,} names) {fate}; other copies of a photograph, re-saved or resized, are not "
        f"detected in a stream"
    )


def overlap_facts(found: Overlap, policy: str) -> dict[str, Any]:
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
        "rows": digest(found.rows.tobytes()),
    }


def digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


FILE = "overlap.json"
LOST = "Put it back from a copy, or train anew with another --output_dir: which rows it left out is not known."


@dataclass
class OverlapRecord:
    """What was found, by what decides the rows.

    `facts` are those of the report and of `overlap.json`. `compared` is what comparing images gave, by what decides
    the rows' images: rows with other texts are not compared again.
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
        """The rows to train on, as the policy says; all processes call it, and the main one alone looks at images.

        Args:
            rows: of training.
            scored: the images that the evaluation scores.
            policy: `EXCLUDE`, `REFUSE` or `ALLOW`.
            columns: of images that training reads.
            key: what decides the rows, as values for JSON.
            images_key: what decides the images that they show.
            log: receives what was found, once it is known that training will start.
            progress: whether to show bars.
            part: Name of the rows in the log, if they are not the training set.
        """
        facts: dict[str, Any] = {"policy": policy}
        if not scored:
            note = (
                "overlap: the evaluation scores scenes of the sandbox alone, which are held out of all training sets"
            )
        elif isinstance(rows, IterableDataset):
            rows, note = apply_to_stream(rows, scored, policy, columns)
        else:
            place = _text(*images_key, columns, len(rows), [(one.name, len(one.cells)) for one in scored])
            if place not in self.compared:
                how = {"columns": columns, "looks": policy != ALLOW, "progress": progress}
                self.compared[place] = run_on_main_process(lambda: find_overlap(rows, scored, **how))
            found = self.compared[place]
            if found.remark():
                log(f"overlap: {part}{': ' * bool(part)}{found.remark()}")
            rows, note = apply_policy(rows, found, policy)
            facts |= overlap_facts(found, policy)
        note = note.replace("overlap: ", f"overlap: {part}: ", 1) if part else note
        self.facts[digest(_text(*key))] = facts | {"note": note}
        log(note)
        return rows

    def check_and_write(self, folder: Path) -> None:
        """Refuses to resume a run on other rows than it began with, and writes `overlap.json`."""
        # An evaluation that has changed may score other images, and so leave out other rows. A resumed run skips
        # finished batches by number, and with other rows these would be other batches.
        path = folder / FILE

        def check() -> None:
            before = read_checked(path, LOST) if path.is_file() else {}
            for key, facts in self.facts.items():
                if key in before and _left_out(before[key]) != _left_out(facts):
                    raise ValueError(
                        f"{folder}: this run was begun on other rows than are left now, as the evaluation or its data "
                        f"changed. Before: {before[key]['note']}. Now: {facts['note']}. Use the evaluation of before, "
                        "or another --output_dir."
                    )
            write_json(path, {**before, **self.facts})

        run_on_main_process(check)


def _left_out(facts: dict[str, Any]) -> Any:
    return facts["rows"] if facts.get("left_out_rows") else None


def _text(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True, default=str)
