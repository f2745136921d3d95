"""MMVP-VLM in the files of its repository on the Hub (about 2 s)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks.composition.image_pairs import MMVP_VLM
from hfcomp.evaluation.engine import NO_IMAGE, run_benchmark
from tests.evaluation.benchmarks import groups, oracle
from tests.evaluation.encoders import Sighted, check_chance, check_known_scorers, items, photos, scores

PATTERNS = ("Orientation", "Camera Perspective")
PAIRS = 2  # in each pattern
TRUE = {number: [f"a photo of thing {number}, seen"] for number in range(2 * PAIRS * len(PATTERNS))}


def raw(folder: Path) -> Path:
    """Image n of the set, which counts from 1, is photo n - 1."""
    lines = ["Question ID,Type,Statement"]
    for number in TRUE:
        pattern = PATTERNS[number // (2 * PAIRS)]
        photos(folder / "MLLM_VLM Images" / pattern, {f"{number + 1}.jpg": number})
        lines.append(f'{number + 1},{pattern},"thing {number}, seen"')
    (folder / "Questions.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_known_scorers(tmp_path):
    rows = items(MMVP_VLM, raw(tmp_path))
    assert rows.rows["subset"][:] == ["Orientation"] * PAIRS + ["Camera Perspective"] * PAIRS
    check_known_scorers(MMVP_VLM, rows, TRUE)


def test_a_random_scorer_is_at_chance():
    check_chance(MMVP_VLM, groups.TEXTS)


def test_the_score_of_the_paper_comes_first(tmp_path):
    """A statement that fits both images loses the image score of the script, and not the text score of the other."""
    both = TRUE | {1: [*TRUE[0], *TRUE[1]]}
    report = run_benchmark(MMVP_VLM, items(MMVP_VLM, raw(tmp_path)), Sighted(oracle.knowing(both)))
    assert report.items["metric"].iloc[0] == "image"
    found = scores(MMVP_VLM, report)
    assert found["Orientation", "image"] == 0.5 and found["Camera Perspective", "image"] == 1
    assert found["mean of 9 patterns", "image"] == 0.75


def test_from_the_hub_at_the_pinned_commit(tmp_path, monkeypatch):
    asked = {}
    folder = raw(tmp_path / MMVP_VLM.data[0].revision)
    monkeypatch.setattr(hub, "snapshot_download", lambda repo, **how: asked.update(how, repo=repo) or str(folder))
    rows = items(MMVP_VLM, None)
    assert (asked["repo"], asked["revision"]) == ("MMVP/MMVP_VLM", folder.name)
    assert {"Questions.csv", "MLLM_VLM Images/*"} <= set(asked["allow_patterns"])
    assert (rows.origin.place, rows.origin.commit) == ("MMVP/MMVP_VLM", folder.name)


def test_what_is_missing_is_left_out_or_named(tmp_path):
    (raw(tmp_path) / "MLLM_VLM Images" / "Orientation" / "2.jpg").unlink()
    assert items(MMVP_VLM, tmp_path).left_out == {NO_IMAGE: 1}
    lines = (tmp_path / "Questions.csv").read_text().splitlines(keepends=True)

    def written(changed: list[str]) -> Path:
        (tmp_path / "Questions.csv").write_text("".join(changed))
        return tmp_path

    with pytest.raises(ValueError, match="Questions.csv: found 7 lines, expected pairs"):
        items(MMVP_VLM, written(lines[:-1]))
    with pytest.raises(ValueError, match="entries 2 and 3 should be a pair, but are of 'Orientation' and 'Camera Per"):
        items(MMVP_VLM, written([*lines[:4], *lines[5:8]]))
    with pytest.raises(
        ValueError, match="Questions.csv, line 3: found 2 fields, .*; expected 3, as in the first line"
    ):
        items(MMVP_VLM, written([*lines[:2], "2,Orientation\n"]))
    with pytest.raises(ValueError, match="Questions.csv, line 2: has no 'Type'; it has 'Question ID', 'Pattern'"):
        items(MMVP_VLM, written([lines[0].replace("Type", "Pattern"), *lines[1:]]))
