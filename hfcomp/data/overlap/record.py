"""What a run found of images that are both trained on and scored, for its report and for going on with its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset

from hfcomp.checksums import read_checked
from hfcomp.data.overlap.guard import Overlap, find_overlap
from hfcomp.data.overlap.image_columns import ScoredImages
from hfcomp.data.overlap.policy import ALLOW, apply_policy, apply_to_stream, digest, overlap_facts
from hfcomp.distributed import on_main_process
from hfcomp.writing import write_json

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

        Raises:
            ValueError: with `REFUSE` where rows overlap, or with `EXCLUDE` where all do.
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
                self.compared[place] = on_main_process(lambda: find_overlap(rows, scored, **how))
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
        """Refuses to resume a run on other rows than it began with, and writes `overlap.json`.

        An evaluation that has changed may score other images, and so leave out other rows.

        Raises:
            ValueError: where other rows are left out than before, or for a damaged file.
        """
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

        on_main_process(check)


def _left_out(facts: dict[str, Any]) -> Any:
    """The digest of the rows that were left out, if any were."""
    return facts["rows"] if facts.get("left_out_rows") else None


def _text(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True, default=str)
