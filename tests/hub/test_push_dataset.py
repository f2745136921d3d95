"""Built sets on the way to the Hub and back, against the stand-in (about 15 s)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import DatasetCard, HfApi

from hfcomp import cli
from hfcomp.checksums import without_text_checksum
from hfcomp.data.built_sets.files import MANIFEST
from hfcomp.data.publishing import TOKEN, loading_text
from hfcomp.hub import datasets as pushing
from hfcomp.hub import repositories
from hfcomp.hub.dataset_cards import SetFolders, set_card
from tests.hub.built import ALLOWED, write_build
from tests.hub.repositories import READ_TOKEN, WRITE_TOKEN, WRONG_TOKEN, File
from tests.hub.running import Hub, run_command, run_in_hub

SHARDS = [f"data/train-0000{number}-of-00003.parquet" for number in range(3)]
TEMPLATE = """---
pretty_name: Things and dogs
license: cc-by-4.0
tags:
- mine
---

# Things and dogs

What they are.
"""


def push(hub: Hub, *words: object, token: str | None = WRITE_TOKEN, fails: bool = False) -> str:
    return run_command(["-m", "hfcomp.cli", "push-dataset", *words], hub.environment(token), fails=fails)


READ_BACK = """
import json, sys
from datasets import load_dataset
from huggingface_hub import snapshot_download
from hfcomp.analysis.pairs.items import named_sets
from hfcomp.data.loading import load_training_set
from hfcomp.data.built_sets.verification import verify_set
whole = load_dataset("me/pairs", split="train")
streamed = list(load_dataset("me/pairs", "random", split="train", streaming=True))
trained_on = load_training_set("me/pairs", config="random", split="train[:2]")
verified = []
verify_set(__import__("pathlib").Path(snapshot_download("me/pairs", repo_type="dataset")) / "random", verified.append)
print(json.dumps({
    "whole": whole["negative_captions"][:],
    "greys": [row["negative_image"].getpixel((0, 0))[0] for row in whole],
    "streamed": [row["negative_captions"] for row in streamed],
    "size": streamed[0]["image"].size,
    "trained on": len(trained_on),
    "analyzed": named_sets(["me/pairs"]),
    "verified": verified[-1],
}))
"""


def test_a_set_of_two_configurations_is_pushed_loaded_and_streamed(hub, tmp_path):
    first, second = (
        write_build(tmp_path / "high_concreteness", word="cats"),
        write_build(tmp_path / "r", word="things", rows=4),
    )
    (tmp_path / "card.md").write_text(TEMPLATE)
    said = push(hub, first, f"random={second}", "--repo", "me/pairs", "--private", "--card", tmp_path / "card.md")
    assert f"pushed to {hub.address}/datasets/me/pairs: 9 files" in said
    pushed = hub.repository("datasets", "me/pairs")
    assert pushed.private and len(pushed.commits) == 2
    for name in (*SHARDS, MANIFEST, "set_aside.jsonl"):
        assert pushed.files[f"high_concreteness/{name}"].content == (first / name).read_bytes()
    contents = json.loads(run_in_hub(hub, READ_BACK))
    assert (
        contents["whole"] == [[f"{row} cats on a large table"] for row in range(7)] and contents["greys"] == [200] * 7
    )
    assert contents["streamed"] == [[f"{row} things on a large table"] for row in range(4)]
    assert contents["size"] == [4, 4] and contents["trained on"] == 2
    assert contents["analyzed"] == {name: f"me/pairs::{name}" for name in ("high_concreteness", "random")}
    assert contents["verified"] == "4 rows in 2 files are intact"
    check_card(pushed.files["README.md"].content.decode())


def check_card(text: str) -> None:
    card = DatasetCard(text)
    assert [entry["config_name"] for entry in card.data.configs] == ["high_concreteness", "random"]
    assert [entry.get("default") for entry in card.data.configs] == [True, None]
    assert (
        card.data.license == "cc-by-4.0" and card.data.tags == ["mine"] and card.data.pretty_name == "Things and dogs"
    )
    assert card.data.size_categories == ["n<1K"] and "license_name" not in card.data.to_dict()
    assert card.text.strip().startswith("# Things and dogs\n\nWhat they are.\n\n## Configurations")
    headings = [line for line in card.text.splitlines() if line.startswith("#")]
    assert headings[:3] == ["# Things and dogs", "## Configurations", "## `high_concreteness`"]
    assert headings.count("### License") == 2 and sum(line.startswith("# ") for line in headings) == 1
    assert "0 cats on a large table" in card.text and 'load_dataset("me/pairs"' in card.text


def push_here(folder: Path, api: HfApi, repo: str = "me/pairs") -> list[str]:
    """Pushes from this process, which is what the command does; returns what was logged."""
    logged: list[str] = []
    pushing.push_built_sets(folder, pushing.PushOptions(repo=repo), log=logged.append, api=api)
    return logged


def test_a_broken_push_changes_nothing_and_the_same_call_resumes(hub, connect, tmp_path, monkeypatch):
    monkeypatch.setattr(repositories, "FILES_PER_BATCH", 2)
    folder, api = write_build(tmp_path / "set", rows=9), connect(WRITE_TOKEN)
    hub.break_uploads(after=2)
    with pytest.raises(ValueError, match="me/pairs .*not pushed: .*'data/train-") as e:
        push_here(folder, api)
    assert "broken in the middle" in str(e.value) and "\n" not in str(e.value)
    assert list(hub.repository("datasets", "me/pairs").files) == [".gitattributes"] and len(hub.blobs) == 2
    hub.fix_uploads()
    before = hub.count("PUT /lfs/")
    push_here(folder, api)
    assert hub.count("PUT /lfs/") - before == 1
    files = hub.repository("datasets", "me/pairs").files
    assert {".gitattributes", "README.md", MANIFEST, "set_aside.jsonl", *SHARDS} == files.keys()
    assert DatasetCard(files["README.md"].content.decode()).data.configs[0]["config_name"] == "default"
    commits = len(hub.repository("datasets", "me/pairs").commits)
    push_here(folder, api)
    assert len(hub.repository("datasets", "me/pairs").commits) == commits


def test_a_later_push_takes_the_place_of_the_earlier_one(hub, connect, tmp_path):
    api = connect(WRITE_TOKEN)
    push_here(write_build(tmp_path / "set", rows=9), api)
    logged = push_here(write_build(tmp_path / "smaller", rows=4, word="birds"), api)
    assert logged[-1].endswith("4 files, 3 earlier ones removed")
    shards = [f"data/train-0000{number}-of-00002.parquet" for number in range(2)]
    expected = {".gitattributes", "README.md", MANIFEST, "set_aside.jsonl", *shards}
    assert expected == hub.repository("datasets", "me/pairs").files.keys()


def test_a_repository_of_something_else_is_left_alone(hub, connect, tmp_path):
    other = hub.create("datasets", "me/other")
    other.commit("by hand", {"data/train-00000-of-00001.parquet": File(b"PAR1")})
    with pytest.raises(ValueError, match="me/other .*push-dataset.*: data/train-0"):
        push_here(write_build(tmp_path / "set"), connect(WRITE_TOKEN), "me/other")
    assert len(other.commits) == 2


WRITING = [
    (WRONG_TOKEN, "Invalid credentials in Authorization header"),
    (READ_TOKEN, "don't have the rights to create a dataset"),
    (False, "Invalid username or password"),
]


@pytest.mark.parametrize(("token", "words"), WRITING)
def test_without_the_right_to_write_nothing_is_made(hub, connect, tmp_path, token, words):
    with pytest.raises(ValueError, match="^dataset me/pairs .*not pushed: .*hf auth login") as raised:
        push_here(write_build(tmp_path / "set"), connect(token))
    assert words in str(raised.value) and "\n" not in str(raised.value) and not hub.repositories


def test_a_hub_that_is_down_is_no_refusal(hub, connect, tmp_path):
    folder, api = write_build(tmp_path / "set"), HfApi(endpoint="http://127.0.0.1:9", token=WRITE_TOKEN)
    connect(WRITE_TOKEN)
    with pytest.raises(ValueError, match=r"refused\. .*HF_HUB_OFFLINE") as raised:
        push_here(folder, api)
    assert "auth login" not in str(raised.value)


def test_a_name_that_the_hub_does_not_allow_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match="^dataset me/x y .*not pushed: .*'me/x y'"):
        pushing.push_built_sets(tmp_path, pushing.PushOptions(repo="me/x y", dry_run=True))


def test_the_command_ends_in_one_line_without_the_token(hub, tmp_path):
    said = push(hub, write_build(tmp_path / "set"), "--repo", "me/pairs", token=WRONG_TOKEN, fails=True).splitlines()
    assert said[-1].startswith("error: dataset me/pairs was not pushed: ") and not hub.repositories
    assert (
        "401" in said[-1]
        and sum(line.startswith("error:") for line in said) == 1
        and not TOKEN.search("\n".join(said))
    )


def refusal_line(*words: object) -> str:
    """The line with which the command ends; it does not get as far as the Hub."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(["push-dataset", *map(str, words), "--repo", "me/pairs", "--dry_run"])
    return str(stopped.value)


def test_rows_whose_license_forbids_adaptation_are_refused(tmp_path, capsys):
    licenses = [
        ALLOWED,
        "Attribution-NoDerivs License",
        ALLOWED,
        None,
        "cc-by-nc-nd-4.0",
        "Attribution-NoDerivs License",
    ]
    folder = write_build(tmp_path / "set", rows=6, licenses=licenses)
    for words in ((), ("--allow_unknown_licenses",)):
        said = refusal_line(folder, *words)
        assert (
            "3 of 6 rows have a license that forbids adaptation (Attribution-NoDerivs License: 2, cc-by-nc-nd" in said
        )
        assert "--only_adaptable" in said


def test_rows_without_a_known_license_have_to_be_allowed(tmp_path, capsys):
    folder = write_build(tmp_path / "rows", licenses=[ALLOWED, None, "whatever", ALLOWED, ALLOWED, None, ""])
    assert "4 of 7 rows have no known license (none: 2, whatever: 1, none: 1)" in refusal_line(folder)
    folder_of_card = write_build(tmp_path / "card", licenses=None)
    assert "7 of 7 rows have no known license (unknown: 7)" in refusal_line(folder_of_card)
    for place in (folder, folder_of_card):
        cli.main(["push-dataset", str(place), "--repo", "me/pairs", "--dry_run", "--allow_unknown_licenses"])
    cli.main(
        [
            "push-dataset",
            str(write_build(tmp_path / "stated", licenses=None, card="cc-by-4.0")),
            "--repo",
            "x",
            "--dry_run",
        ]
    )
    printed = capsys.readouterr().out
    assert "would push to x: README.md, data/train-00000-of-00003.parquet" in printed and "7 rows of" in printed


def test_a_set_with_ratings_is_refused_and_one_with_an_empty_column_is_not(tmp_path):
    said = refusal_line(write_build(tmp_path / "set", rated=True))
    assert (
        "column 'negative_concreteness' has concreteness ratings in 7 rows" in said and "concreteness_ratings" in said
    )


def test_a_damaged_set_is_refused(tmp_path):
    folder = write_build(tmp_path / "set")
    (folder / SHARDS[1]).write_bytes((folder / SHARDS[1]).read_bytes()[:-3])
    assert f"{SHARDS[1]} is damaged" in refusal_line(folder)
    assert "no manifest.json" in refusal_line(tmp_path)


CONFIGS = [
    {"config_name": name, "data_files": [{"split": "train", "path": f"{name}/data/*"}]}
    for name in ("random", "high_concreteness")
]


@pytest.fixture
def several(tmp_path) -> Path:
    """A build as `hfcomp build` leaves it: a folder for each configuration, and one card that names them."""
    for entry in CONFIGS:
        write_build(tmp_path / entry["config_name"], rows=3, licenses=None)
        (tmp_path / entry["config_name"] / "README.md").unlink()
    metadata = {"license": "cc-by-4.0", "configs": [{**CONFIGS[0], "default": True}, CONFIGS[1]]}
    text = f"# Both\n\n{loading_text(['random', 'high_concreteness'])}\n\n## Parts"
    (tmp_path / "README.md").write_text(f"---\n{json.dumps(metadata)}\n---\n\n{text}\n")
    (tmp_path / "steps").mkdir()
    return tmp_path


def test_a_set_of_several_configurations_is_pushed_by_its_one_folder(hub, connect, several):
    push_here(several, connect(WRITE_TOKEN))
    files = hub.repository("datasets", "me/pairs").files
    kept = ("data/train-00000-of-00001.parquet", MANIFEST, "set_aside.jsonl")
    expected = {f"{name}/{file}" for name in ("random", "high_concreteness") for file in kept}
    assert files.keys() == {".gitattributes", "README.md", *expected}
    card = DatasetCard(files["README.md"].content.decode())
    configs = [{**CONFIGS[0], "default": True}, CONFIGS[1]]
    assert card.data.configs == configs and "# Both" in card.text
    (several / "mine.md").write_text(TEMPLATE)
    card = DatasetCard(set_card(SetFolders.of(several), "me/pairs", several / "mine.md"))
    assert card.data.configs == configs and card.data.tags == ["mine"]
    assert card.text.strip().startswith("# Things and dogs\n\nWhat they are.\n\n## This build\n\n```python")
    assert without_text_checksum(card.text).endswith("### Parts\n")


def test_single_configurations_of_a_set_have_the_card_of_all(several, capsys, monkeypatch):
    monkeypatch.chdir(several / "random")
    for words in ([several / "random"], ["."], [f"r={several / 'random'}", f"h={several / 'high_concreteness'}"]):
        cli.main(["push-dataset", *map(str, words), "--repo", "me/pairs", "--dry_run"])
    assert capsys.readouterr().out.count("would push to me/pairs: README.md, ") == 3
    card = DatasetCard(set_card(SetFolders.of(several / "random"), "me/pairs"))
    assert [entry["data_files"][0]["path"] for entry in card.data.configs] == ["data/train-*.parquet"]
    assert card.data.license == "cc-by-4.0" and card.text.count("load_dataset(") == 1
    card = DatasetCard(set_card(SetFolders.of({"r": several / "random", "h": several / "high_concreteness"}), "me/x"))
    assert [entry["config_name"] for entry in card.data.configs] == ["r", "h"]
    assert 'load_dataset("me/x", "r", split="train")' in card.text and card.text.count("### Parts") == 1
    assert "## `r`, `h`" in card.text and "`r` is `random`, `h` is `high_concreteness`." in card.text


def test_sets_of_one_license_keep_its_name(tmp_path):
    card = DatasetCard(
        set_card(SetFolders.of({name: write_build(tmp_path / name, rows=1) for name in ("a", "b")}), "me/x")
    )
    assert (card.data.license, card.data.license_name) == ("other", "per-row")
    folders = {"a": tmp_path / "a", "c": write_build(tmp_path / "c", rows=1, licenses=None, card="cc-by-4.0")}
    card = DatasetCard(set_card(SetFolders.of(folders), "me/x"))
    assert card.data.license == "other" and "license_name" not in card.data.to_dict()


def test_a_card_of_something_else_above_a_set_is_none_of_its_own(several):
    (several / "README.md").write_text("---\nlicense: mit\n---\n\n# A project\n")
    said = refusal_line(several / "random")
    assert "3 of 3 rows have no known license (none: 3)" in said
    assert "random has no README.md" in refusal_line(several / "random", "--allow_unknown_licenses")


def test_folders_are_named_by_what_is_given_or_by_themselves(tmp_path):
    folder = write_build(tmp_path / "set")
    assert "'set' is given twice" in refusal_line(folder, folder)
    assert "config 'a b'" in refusal_line(folder, f"a b={folder}")
    with pytest.raises(ValueError, match="'default': .* not 'default'"):
        pushing.push_built_sets({"default": folder, "random": folder}, pushing.PushOptions(repo="x", dry_run=True))
