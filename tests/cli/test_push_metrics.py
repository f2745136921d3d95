"""Pushing the metrics: which Spaces are made, what lies in them, and that it loads from there."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors
from huggingface_hub.utils import filter_repo_objects

from hfcomp import cli
from hfcomp.hub.metrics import module_files
from hfcomp.metrics.modules import MODULES, module_path
from tests.metrics.evaluate_cache import evaluate

TOKEN = "hf_" + "a1B2" * 8
BUSY = SimpleNamespace(status_code=503, headers={}, request=None)


class Hub:
    """An `HfApi` whose Hub is a folder; it takes files as the real one does, by their patterns."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, {}

    def create_repo(self, repo_id, *, repo_type, space_sdk, private, exist_ok):
        assert (repo_type, space_sdk, exist_ok) == ("space", "gradio", True)
        self.made[repo_id] = private
        return f"https://hub.example/spaces/{repo_id}"

    def upload_folder(self, *, repo_id, repo_type, folder_path, allow_patterns, commit_message):
        assert repo_type == "space" and repo_id in self.made
        files = [str(path.relative_to(folder_path)) for path in Path(folder_path).rglob("*") if path.is_file()]
        for file in filter_repo_objects(files, allow_patterns=allow_patterns):
            target = self.folder / repo_id / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(folder_path) / file, target)


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Hub:
    made = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: made)
    return made


def test_every_metric_is_pushed_and_printed(hub, capsys):
    cli.main(["push-metrics", "--namespace", "me"])
    printed = capsys.readouterr().out
    assert hub.made == dict.fromkeys((f"me/{name}" for name in MODULES), False)
    for name in MODULES:
        files = {path.name for path in (hub.folder / "me" / name).iterdir()}
        assert files == {f"{name}.py", "README.md", "app.py", "requirements.txt"}
        assert f"pushed to https://hub.example/spaces/me/{name}: {name}.py, README.md" in printed


def test_what_is_pushed_loads_by_the_space_s_own_name(hub):
    """`evaluate` asks the Space `me/name` for `name.py`."""
    cli.main(["push-metrics", "--namespace", "me", "--only", "caption_choice", "recall_at_k", "--private"])
    assert hub.made == {"me/caption_choice": True, "me/recall_at_k": True}
    metric = evaluate.load(str(hub.folder / "me" / "caption_choice"))
    assert metric.compute(true_score=[0.9], other_scores=[[0.1, 0.2]])["accuracy"] == 1.0


def test_a_dry_run_lists_and_sends_nothing(hub, capsys):
    cli.main(["push-metrics", "--namespace", "me", "--only", "hierarchy", "--private", "--dry_run"])
    assert capsys.readouterr().out == (
        "would push to Space me/hierarchy (private): hierarchy.py, README.md, app.py, requirements.txt\n"
    )
    assert not hub.made


def test_every_file_that_is_named_is_there():
    for name in MODULES:
        for file in module_files(name):
            assert (module_path(name) / file).is_file()


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(f"token {TOKEN} is not valid"), "is not valid. Log in with `hf auth login`"),
        (errors.HfHubHTTPError.__bases__[0](TOKEN), "TOKEN. The Hub is unreachable: check the connection"),
        (errors.HfHubHTTPError("503", response=BUSY), "repeat the command later"),
        (ConnectionError("Offline."), "HF_HUB_OFFLINE"),
    ],
)
def test_a_refusal_names_the_space_and_no_token(hub, monkeypatch, error, advice):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(hub, "create_repo", refuse)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["push-metrics", "--namespace", "me"])
    assert "me/caption_choice was not pushed" in str(stopped.value) and advice in str(stopped.value)
    assert TOKEN not in str(stopped.value)


@pytest.mark.parametrize("arguments", [[], ["--namespace", "me", "--only", "accuracy"]])
def test_wrong_arguments_are_refused(hub, capsys, arguments):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["push-metrics", *arguments])
    shown = f"{stopped.value} {capsys.readouterr().err}"
    wrong = "--only: found 'accuracy', expected one of caption_choice" if arguments else "--namespace"
    assert wrong in shown and not hub.made
