"""What a finished stage leaves beside its model, read again by a run that goes on."""

from __future__ import annotations

import pytest

from hfcomp.experiments.arm import Arm
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.stages import read_history, read_summary
from tests import tiny


def test_a_damaged_summary_log_or_model_is_an_error_that_names_the_file(clip, tmp_path):
    arguments = {"max_steps": 2, "logging_steps": 1, "use_cpu": True, "report_to": "none", "disable_tqdm": True}
    run = Arm("plain", InfoNCETrainer, arguments, tiny.pairs(8), 4)
    cost = run.train(clip, tmp_path)
    assert read_summary(tmp_path) == cost == run.train(clip, tmp_path)
    losses = [line["loss"] for line in read_history(tmp_path) if "loss" in line]
    assert len(losses) == 2
    log, summary = tmp_path / "history.json", tmp_path / "stage.json"
    whole = log.read_text()
    log.write_text(whole.replace('"step": 2', '"step": 6'))
    with pytest.raises(ValueError, match=r"history\.json is damaged: expected sha256 .* Remove stage\.json and start"):
        read_history(tmp_path)
    log.write_text(whole)
    summary.write_text(summary.read_text().replace('"steps": 2', '"steps": 3'))
    with pytest.raises(ValueError, match=r"stage\.json is damaged: expected content of sha256.*Remove stage\.json"):
        run.train(clip, tmp_path)
    summary.write_text(summary.read_text().replace('"steps": 3', '"steps": 2'))
    model = tmp_path / "model.safetensors"
    content = model.read_bytes()
    model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: expected sha256 .*Remove stage\.json"):
        run.train(clip, tmp_path)
    summary.unlink()
    assert run.train(clip, tmp_path).steps == 2  # as the error says
