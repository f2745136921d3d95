"""A set of parts on the way to the Hub and back, against the stand-in (about 10 s)."""

from __future__ import annotations

import json

import pytest
from huggingface_hub import DatasetCard

from hfcomp.data.loading import load_training_set
from hfcomp.hub import datasets as pushing
from tests.factory.magic.sets import build_magic, source
from tests.hub.repositories import WRITE_TOKEN
from tests.hub.running import run_in_hub

READ_BACK = """
import json
from pathlib import Path
from datasets import load_dataset
from huggingface_hub import snapshot_download
from hfcomp.data.loading import load_training_set
from hfcomp.data.built_sets.verification import verify_set
names = lambda rows: sorted(row["image_id"] for row in rows)
streamed = load_dataset("me/magic", "levels_by_concept", split="test", streaming=True)
verified = []
folder = Path(snapshot_download("me/magic", repo_type="dataset"))
verify_set(folder, verified.append)
print(json.dumps({
    "default": load_dataset("me/magic", split="train").column_names,
    "levels": names(load_dataset("me/magic", "levels", split="test")),
    "streamed": names(streamed),
    "columns": list(next(iter(streamed))),
    "trained on": names(load_training_set("me/magic", config="captions", split="train")),
    "downloaded": names(load_training_set(str(folder), config="levels", split="test")),
    "verified": len(verified),
}))
"""


def push(folder, api) -> list[str]:
    logged: list[str] = []
    options = pushing.PushOptions(repo="me/magic")
    pushing.push_built_sets(folder, options, log=logged.append, api=api)
    return logged


@pytest.mark.slow
def test_a_set_of_parts_is_pushed_loaded_and_streamed(hub, connect, tmp_path):
    folder = build_magic(tmp_path, only_adaptable=True).folder
    logged = push(folder, connect(WRITE_TOKEN))
    files = hub.repository("datasets", "me/magic").files
    assert {"views.json", "hierarchy.json", "README.md", "image_test_concept_test/manifest.json"} <= files.keys()
    assert not any(name.startswith("steps") for name in files) and len(logged) == 5
    configs = DatasetCard(files["README.md"].content.decode()).data.configs
    assert [config["config_name"] for config in configs] == [
        "captions",
        "levels",
        "captions_by_concept",
        "levels_by_concept",
    ]

    def here(config: str, split: str) -> list[str]:
        return sorted(load_training_set(str(folder), split=split, config=config)["image_id"])

    contents = json.loads(run_in_hub(hub, READ_BACK))
    assert contents["levels"] == contents["downloaded"] == here("levels", "test")
    assert contents["streamed"] == here("levels_by_concept", "test") and "level_4" in contents["columns"]
    assert contents["trained on"] == here("captions", "train") and "level_1" not in contents["default"]
    assert contents["verified"] > 10


def test_a_later_push_removes_what_the_earlier_one_had_more(hub, connect, tmp_path):
    api = connect(WRITE_TOKEN)
    push(build_magic(tmp_path / "first").folder, api)
    before = set(hub.repository("datasets", "me/magic").files)
    source(tmp_path / "second" / "source", per_concept=5)
    logged = push(build_magic(tmp_path / "second").folder, api)
    after = set(hub.repository("datasets", "me/magic").files)
    assert after != before and "earlier ones removed" in logged[-1]
    shards = {name for name in after if name.endswith(".parquet")}
    assert shards == {
        str(path.relative_to(tmp_path / "second" / "magic"))
        for path in (tmp_path / "second" / "magic").rglob("*.parquet")
        if "steps" not in path.parts
    }


def test_a_part_or_a_step_alone_is_refused_and_so_is_a_set_under_a_name(connect, hub, tmp_path):
    folder, api = build_magic(tmp_path).folder, connect(WRITE_TOKEN)
    for place in ("image_train_concept_train", "steps/captions"):
        with pytest.raises(ValueError, match=f"{place} .*part .*{folder}"):
            push(folder / place, api)
    with pytest.raises(ValueError, match="'mine': .*separately"):
        push({"mine": folder, "other": folder}, api)


def test_rows_that_may_not_be_published_are_refused(connect, hub, tmp_path):
    source(tmp_path / "source", license={3: "Attribution-NoDerivs License"})
    with pytest.raises(ValueError, match="1 of .* rows .*Attribution-NoDerivs License: 1"):
        push(build_magic(tmp_path).folder, connect(WRITE_TOKEN))
