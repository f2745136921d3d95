"""What the programs of `dataset_builders` make of their words; with the Hub they are tested in tests/hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.factory import publishing
from hfcomp.factory.concretebatch.chain import ConcreteBatchOptions
from hfcomp.factory.options import NegativeOptions

WORDS = ["--source", "coco", "--output", "out"]
CARD = Path("card.md")


@pytest.fixture
def run(monkeypatch):
    """Runs a builder that builds nothing; returns what it would build from, and what it would push."""

    def run(*words, kind=NegativeOptions):
        built, pushed = [], []

        def check(options) -> None:
            assert not built, "the repository is checked before the build"

        monkeypatch.setattr("hfcomp.hub.datasets.check_repository", check)
        monkeypatch.setattr("hfcomp.hub.datasets.push_built_sets", lambda *given: pushed.append(given))
        build = lambda given: built.append(given) or given["output"]  # noqa: E731
        publishing.build_and_push([*WORDS, *words], kind, build, card=CARD)
        return built[0], pushed

    return run


def test_only_rows_that_may_be_adapted_are_read_unless_all_are_asked_for(run):
    assert run() == ({"only_adaptable": True, "source": "coco", "output": Path("out")}, [])
    assert run("--any_license")[0]["only_adaptable"] is False
    assert run("--seed", "3")[0]["seed"] == 3


def test_a_repository_receives_the_set_with_the_builder_s_card_or_another(run):
    _, [(folder, options)] = run("--push_to_hub", "me/set", "--allow_unknown_licenses")
    assert folder == Path("out") and options.repo == "me/set" and options.allow_unknown_licenses
    assert options.card == CARD and not options.private
    _, [(_, options)] = run("--push_to_hub", "me/set", "--card", "mine.md", "--private")
    assert options.card == Path("mine.md") and options.private


def test_options_of_a_push_need_a_repository(run):
    with pytest.raises(ValueError, match="--private .*--push_to_hub"):
        run("--private")


def test_a_set_that_would_not_be_finished_is_not_pushed(run):
    with pytest.raises(ValueError, match="--push_to_hub .*--until targets"):
        run("--push_to_hub", "me/set", "--until", "targets", kind=ConcreteBatchOptions)
    built, pushed = run("--until", "targets", kind=ConcreteBatchOptions)
    assert built["until"] == "targets" and not pushed


def test_all_licenses_and_only_those_that_allow_adaptation_contradict_each_other(run):
    with pytest.raises(ValueError, match="--any_license and --only_adaptable"):
        run("--any_license", "--only_adaptable")


def test_a_push_that_fails_leaves_the_set_and_the_command_that_pushes_it(monkeypatch):
    def fail(*_):
        raise ValueError("dataset me/set was not pushed: 503.")

    monkeypatch.setattr("hfcomp.hub.datasets.check_repository", lambda options: None)
    monkeypatch.setattr("hfcomp.hub.datasets.push_built_sets", fail)
    words = [*WORDS, "--push_to_hub", "me/set", "--private"]
    with pytest.raises(ValueError, match=r"is built, .*not pushed: 503") as raised:
        publishing.build_and_push(words, NegativeOptions, lambda given: {"a": Path("out/a")}, card=CARD)
    assert "`hfcomp push-dataset a=out/a --repo me/set --private --card card.md`" in str(raised.value)
