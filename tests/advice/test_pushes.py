"""Follows the advice of refused dataset pushes, against the stand-in Hub."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp import cli
from hfcomp.data.loading import load_training_set
from tests.factory.inpaintcoco import sets
from tests.hub.repositories import WRITE_TOKEN
from tests.hub.running import connect as connect
from tests.hub.running import hub as hub
from tests.hub.running import only_hub as only_hub

follows = pytest.mark.follows
DATASETS = "hfcomp/hub/datasets.py"
FREE, CLOSED = "Attribution License", "Attribution-NoDerivs License"


@pytest.fixture
def online(hub, connect, monkeypatch):
    """The command line talks to the stand-in Hub."""
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: connect(WRITE_TOKEN))
    return hub


@pytest.fixture
def build(tmp_path):
    """Builds negatives of rows with licenses, on the command line."""

    def build(output: Path, licenses: list[str | None], *words: str, **columns) -> Path:
        lines = [
            {"caption": f"{row} dogs on a large table", "license": name, **columns}
            for row, name in enumerate(licenses)
        ]
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, lines)))
        given = ["--source", str(tmp_path / "rows.jsonl"), "--kinds", "keyword", "--output", str(output)]
        cli.main(["build", "negatives", *given, *words])
        return output

    return build


def push_dataset(folder: Path, *words: str, repo: str = "me/pairs") -> list[str]:
    return ["push-dataset", str(folder), "--repo", repo, *words]


@follows(
    DATASETS, "Build it again in another folder with `hfcomp build KIND --only_adaptable`, or without `--any_license`."
)
@follows(DATASETS, "Pass --allow_unknown_licenses if all may be published")
@follows(DATASETS, ", or build it again in another folder with `hfcomp build KIND --only_adaptable`, or without")
def test_licenses(advice, online, build, tmp_path):
    closed, free = tmp_path / "closed", tmp_path / "free"
    advice.command(*push_dataset(build(closed, [FREE, CLOSED])))
    said = advice.of(build, closed, [FREE, CLOSED], "--push_to_hub", "me/closed")
    assert "Then push it" not in said  # what is advised is another build
    cli.main(push_dataset(build(free, [FREE, CLOSED], "--only_adaptable")))
    unknown = build(tmp_path / "unknown", [FREE, None])
    advice.command(*push_dataset(unknown))
    cli.main(push_dataset(unknown, "--allow_unknown_licenses"))
    build(tmp_path / "known", [FREE, None], "--only_adaptable", "--push_to_hub", "me/known")
    details = sets.row(1)["coco_details"] | {"image_license": CLOSED}
    pairs = sets.publish(tmp_path / "InpaintCOCO", [sets.row(0), sets.row(1, coco_details=details)])
    words = ["build", "inpaintcoco", "--source", str(pairs), "--output"]
    cli.main([*words, str(tmp_path / "any"), "--any_license"])
    assert "`--any_license`" in advice.command(*push_dataset(tmp_path / "any", repo="me/changed"))
    cli.main([*words, str(tmp_path / "some")])
    cli.main(push_dataset(tmp_path / "some", repo="me/changed"))


@follows(DATASETS, "in another folder, without this column: `hfcomp build KIND --columns NAMES`")
def test_columns_that_may_not_be_published(advice, online, build, tmp_path):
    rated = build(tmp_path / "rated", [FREE], concreteness=4.9)
    advice.command(*push_dataset(rated))
    plain = build(tmp_path / "plain", [FREE], "--columns", "license", concreteness=4.9)
    cli.main(push_dataset(plain))
    assert "concreteness" not in load_training_set(str(plain)).column_names
