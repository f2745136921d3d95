"""Tracking of a study with the trackers in `report_to`: one tracker run per arm, and one for the results."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from hfcomp.data.loading import TrainingRows
from hfcomp.experiments.arm import Arm, method_arm
from hfcomp.experiments.recipes import Recipe
from hfcomp.reporting.lines import KEYS, Line
from hfcomp.reporting.row_pictures import draw_gallery
from hfcomp.trainers.stages import stage_config
from hfcomp.trainers.trackers import TENSORBOARD_FOLDER, TrackedRun, project_name, send_results

EXAMPLES = 4
RESULTS = "results"


def tracked_arm(folder: Path, arm: Arm) -> TrackedRun:
    """The tracker run of an arm, with a picture of its first training pairs.

    The tracker runs of a study form a group, named after `run_name` or, if unset, after the study's folder.
    """
    name, rows, given = arm.name, arm.rows, arm.arguments

    def pictures() -> dict[str, bytes]:
        content = example_pairs(name, rows)
        return {"examples/training_pairs": content} if content else {}

    group = given.get("run_name") or folder.name
    return TrackedRun(project_name(given.get("project")), group, name, folder / TENSORBOARD_FOLDER, pictures)


def example_pairs(name: str, rows: Any) -> bytes:
    """A PNG of an arm's first rows as the trainer reads them; empty for a stream, whose rows are not read twice."""
    rows = rows.dataset if isinstance(rows, TrainingRows) else rows
    if not isinstance(rows, Dataset):
        return b""
    with tempfile.TemporaryDirectory() as folder:
        count = min(EXAMPLES, len(rows))
        return draw_gallery(rows, Path(folder) / "pairs.png", rows=range(count), heading=name).read_bytes()


def track_results(recipe: Recipe, folder: Path, figure: Path, lines: Sequence[Line]) -> None:
    """Sends the table of results, and the figure if matplotlib is installed, as the tracker run `results`."""
    # This arm is never trained; only its config is needed, which names the trackers.
    arm = method_arm(recipe, None, name=RESULTS)
    names = stage_config(arm.trainer_class, folder, arm.arguments, arm.batch_size).report_to
    if not names:
        return
    run = tracked_arm(folder, arm).with_name(RESULTS)
    pictures = {"results/figure": figure.read_bytes()} if figure.is_file() else {}
    send_results(names, run, pictures=pictures, tables={"results/table": results_table(lines)})


def results_table(lines: Sequence[Line]) -> tuple[list[str], list[list]]:
    """Header and rows: one row per line and model, with its interval."""
    header = [*KEYS, "aspect", "model", "value", "low", "high", "chance"]
    rows = []
    for line in lines:
        for model, estimate in line["models"].items():
            numbers = [estimate.get(name) for name in ("value", "low", "high")]
            rows.append([*(line[key] for key in KEYS), line["aspect"], model, *numbers, line["chance"]])
    return header, rows
