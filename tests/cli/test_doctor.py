"""`hfcomp doctor` without a Hub: tables and JSON of what is found, and its status."""

from __future__ import annotations

import json

import pytest

from hfcomp import cli
from hfcomp.cli import environment
from hfcomp.cli.environment import Finding


@pytest.fixture
def checks(monkeypatch):
    checks = {
        "packages": lambda: iter([Finding("packages", "torch", "2.13")]),
        "hub": lambda: iter([Finding("hub", "login", "none", "note", "hf auth login")]),
    }
    monkeypatch.setattr(environment, "CHECKS", checks)
    return checks


def test_notes_leave_the_status_at_0(checks, capsys):
    cli.main(["doctor"])
    text = " ".join(capsys.readouterr().out.split())
    assert "torch 2.13" in text and "login note none" in text and "login: hf auth login" in text
    assert text.endswith("Everything that hfcomp requires works.")


def test_something_broken_ends_with_status_1_and_comes_first(checks, capsys):
    checks["storage"] = lambda: iter([Finding("storage", "temporary files", "full", "broken", "Set TMPDIR.")])
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor"])
    assert ended.value.code == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "What to do temporary files: Set TMPDIR. login: hf auth login Broken: temporary files." in text
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["works"] is False
    assert answer["findings"][0] == {"area": "packages", "name": "torch", "found": "2.13", "state": "ok", "fix": ""}
