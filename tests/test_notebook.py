"""The notebook of the docs runs from top to bottom, and shows hfcomp's numbers while it trains."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_quick_start_runs_and_shows_the_objective_and_the_benchmark(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "docs/quickstart.ipynb", as_version=4)
    assert not [cell for cell in notebook.cells if cell.get("outputs")], "commit it without outputs"
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    shown = {cell.id: "".join(map(str, cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"}
    (training,) = (outputs for outputs in shown.values() if "Training Loss" in outputs)
    for column in ("hard negatives", "own image to text recall@1", "own caption choice"):
        assert f">{column}<" in training.replace("</th>", "<")
    assert any("tuned minus base" in outputs for outputs in shown.values())
    assert (tmp_path / "tuned" / "model.safetensors").is_file()
