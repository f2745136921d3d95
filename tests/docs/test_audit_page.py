"""The example of docs/audit.md, as it stands, prints what the page shows."""

from __future__ import annotations

import re
import shlex

import pytest

from hfcomp import cli
from tests.docs.snippets import ROOT

pytest.importorskip("sklearn", reason="the probe of words needs scikit-learn: pip install 'hfcomp[eval]'")


def test_the_audit_of_the_sandbox(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8").partition("test_audit_page.py -->")[2]
    command, shown = re.findall(r"```\w*\n(.*?)```", page, re.DOTALL)[:2]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    program, *words = shlex.split(command)
    assert program == "hfcomp"
    cli.main(words)  # no limit fails
    printed = [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()]
    assert "\n".join(printed).startswith(shown.strip())
    assert (tmp_path / "runs" / "audit" / "audit.html").is_file()
