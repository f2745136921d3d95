"""What the automatic mode has tried, in the folder of a project, so that nothing is tried twice with one setting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from hfcomp.generation.writers.requests import content_hash
from hfcomp.reading import parse_json
from hfcomp.writing import append_text, write_json

FOLDER, FILE = "drafts", "drafts.jsonl"
Outcome = Literal["submitted", "set aside"]


class DraftLog:
    """A file of JSON lines, one for each item that was tried: its outcome, why, and how the edit was made.

    The settings of each line are in a file `settings-<hash>.json` beside it. A line is on the disk when `append`
    returns. What a killed process left of a line is not read.

    Args:
        project: folder of the project.
        settings: all that decides what is made of an item, as JSON values.

    Attributes:
        tried: ids of the items that have a line with these settings.
    """

    def __init__(self, project: Path, settings: Mapping[str, Any]) -> None:
        self._path = project / FOLDER / FILE
        self._path.parent.mkdir(exist_ok=True)
        self._settings = content_hash(settings)[:12]
        write_json(self._path.with_name(f"settings-{self._settings}.json"), settings)
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.is_file() else []
        self._is_cut = bool(lines) and not lines[-1].endswith(b"\n")
        found = [_read(line) for line in lines]
        self.tried = {line["item"] for line in found if line and line["settings"] == self._settings}

    def append(self, item: str, outcome: Outcome, **facts: Any) -> None:
        """Writes a line.

        Raises:
            OSError: for a full disk.
        """
        line = {"item": item, "outcome": outcome, "settings": self._settings, **facts}
        start = "\n" if self._is_cut else ""
        append_text(self._path, f"{start}{json.dumps(line, ensure_ascii=False)}\n")
        self._is_cut = False
        self.tried.add(item)


def _read(line: bytes) -> Mapping[str, Any] | None:
    try:
        found = parse_json(line.decode())
        return found if {"item", "settings"} <= {*found} else None
    except (ValueError, TypeError):
        return None
