"""Follows the advice of pushes, against the stand-in Hub."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
from transformers import AutoProcessor

from hfcomp import cli
from hfcomp.data.loading import load_training_set
from hfcomp.data.negatives import with_concreteness
from hfcomp.experiments.pushing import RunPush
from hfcomp.experiments.recipes import read_recipe
from hfcomp.hub.repositories import PUSHED_FILE, pushes_of
from tests.hub.built import write_build
from tests.hub.repositories import WRITE_TOKEN, File
from tests.hub.running import connect as connect
from tests.hub.running import hub as hub
from tests.hub.running import only_hub as only_hub
from tests.hub.runs import finished_run

SETS, FILES = "hfcomp/hub/datasets.py", "hfcomp/hub/models.py"
follows = pytest.mark.follows


@pytest.fixture(autouse=True)
def logged_in(connect, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi", lambda *_, **__: connect(WRITE_TOKEN))


@follows(
    "hfcomp/hub/repositories.py",
    "Pass --force to replace them (the Git history keeps them), --revision BRANCH for a separate",
)
@follows("hfcomp/hub/repositories.py", "Remove it; the next push then needs --force.")
@follows(FILES, "Repeat the command that started it to resume.")
@follows(
    FILES,
    "Save the base model's processor there: AutoProcessor.from_pretrained(BASE).save_pretrained({str(folder)!r}).",
)
@follows(FILES, "`hfcomp push-dataset {place}` pushes a built set.")
@follows("hfcomp/hub/models.py", "the push was not recorded ({error}); the next one from {place} needs --force")
def test_models(advice, hub, clip, tmp_path, monkeypatch, capsys):
    run = finished_run(tmp_path / "run", clip)
    words = ["push", str(run), "--repo"]
    hub.create("models", "me/taken", private=True).commit("by hand", {"config.json": File(b"{}")})
    advice.command(*words, "me/taken")
    cli.main([*words, "me/taken", "--revision", "mine"])
    cli.main([*words, "me/other"])
    cli.main([*words, "me/taken", "--force"])
    (run / PUSHED_FILE).write_text("damaged")
    advice.of(pushes_of, run)
    (run / PUSHED_FILE).unlink()
    cli.main([*words, "me/taken", "--force"])
    with monkeypatch.context() as patch:
        patch.setattr("hfcomp.hub.models.record_push", lambda *_: (_ for _ in ()).throw(OSError("full")))
        hub.create("models", "me/new", private=True)
        capsys.readouterr()
        cli.main([*words, "me/new"])
        advice.read(capsys.readouterr().out)
    cli.main([*words, "me/new", "--force"])
    (run / "finished").unlink()
    advice.command(*words, "me/mine")
    (run / "finished").write_text("")  # as the command that started it does at its end
    cli.main([*words, "me/mine"])
    bare = tmp_path / "bare"
    shutil.copytree(
        clip, bare, ignore=lambda folder, names: [name for name in names if "processor" in name or "token" in name]
    )
    message = advice.command("push", str(bare), "--repo", "me/bare")
    assert f"save_pretrained('{bare}')" in message
    AutoProcessor.from_pretrained(clip).save_pretrained(str(bare))
    cli.main(["push", str(bare), "--repo", "me/bare"])
    message = advice.command("push", str(write_build(tmp_path / "set")), "--repo", "me/set")
    advised = shlex.split(message.partition("`")[2].partition("`")[0])
    cli.main([*advised[1:], "--repo", "me/set"])


@follows(SETS, "hfcomp joins the ratings from your own file when it loads a dataset (a recipe's concreteness_ratings")
def test_sets(advice, hub, tmp_path):
    def push(folder: Path, *more: str) -> list[str]:
        return ["push-dataset", str(folder), "--repo", f"me/{folder.name}", *more]

    rated = write_build(tmp_path / "rated", rated=True)
    advice.command(*push(rated))
    plain = write_build(tmp_path / "plain")
    cli.main(push(plain))
    ratings = tmp_path / "ratings.txt"
    ratings.write_text("Word\tConc.M\tDom_Pos\ndog\t4.85\tNoun\n")
    assert with_concreteness(load_training_set(str(plain)), str(ratings), print)["negative_concreteness"][0]


@follows(
    "hfcomp/experiments/pushing.py", "Pass --hub_revision BRANCH for a separate branch or another --hub_model_id;"
)
def test_runs(advice, hub, clip, tmp_path):
    hub.create("models", "me/taken", private=True).commit("by hand", {"config.json": File(b"{}")})

    def check(*words: str) -> None:
        recipe = read_recipe("slipform", ["--push_to_hub", "--hub_model_id", *words])
        RunPush.of(recipe.push, recipe.experiment.method).check()

    message = advice.of(check, "me/taken")
    check("me/taken", "--hub_revision", "mine")
    check("me/another")
    run = finished_run(tmp_path / "run", clip)
    advised = message.partition("`hfcomp ")[2].partition("`")[0]
    cli.main(advised.replace("RUN", str(run)).replace("NAME", "me/taken").split())
