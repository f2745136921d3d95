"""Stages that are kept, and continued from their last whole checkpoint."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoProcessor

from hfcomp.evaluation.encoding.identity import weights_hash
from hfcomp.modeling import load_backbone
from hfcomp.trainers.cement import CementTrainer
from hfcomp.trainers.cost import StageSummary
from hfcomp.trainers.info_nce import InfoNCETrainer
from hfcomp.trainers.stages import last_checkpoint, read_history, read_summary, train_stage, write_checksums
from tests import tiny


def train(
    trainer: type, model: Path, folder: Path, rows: datasets.Dataset, size: int, fields: dict[str, Any]
) -> StageSummary:
    return train_stage("m", trainer, model, rows, folder, fields, batch_size=size, resume=True)


def checkpoint(folder: Path, step: int) -> Path:
    """Files as transformers writes them, and hfcomp's last."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    torch.save({"step": torch.arange(9)}, path / "optimizer.pt")
    torch.save({}, path / "rng_state.pth")
    save_file({"weight": torch.ones(9)}, path / "model.safetensors")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}, indent=2))
    write_checksums(path)
    return path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    "spoil", [cut, flip, Path.unlink, lambda path: path.write_bytes(b"")], ids=["cut", "flip", "delete", "empty"]
)
@pytest.mark.parametrize(
    "name", ["trainer_state.json", "rng_state.pth", "optimizer.pt", "model.safetensors", "checksums.json"]
)
def test_a_damaged_checkpoint_is_passed_over_and_reported(tmp_path, name, spoil):
    whole, lines = checkpoint(tmp_path, 90), []
    last = checkpoint(tmp_path, 100)
    assert last_checkpoint(tmp_path, lines.append) == str(last) and not lines
    spoil(last / name)
    assert last_checkpoint(tmp_path, lines.append) == str(whole)
    assert re.fullmatch(rf"{tmp_path}: checkpoint-100 .* checkpoint-90", lines.pop())
    spoil(whole / name)
    assert last_checkpoint(tmp_path, lines.append) is None
    assert re.search("checkpoint-100 .*beginning$", lines.pop())


def test_a_run_whose_last_checkpoint_is_damaged_ends_with_the_same_weights(clip, tmp_path, capsys):
    """In an earlier attempt both checkpoints were written, and the run was killed before its model was."""
    fields = {"max_steps": 5, "save_steps": 2, "use_cpu": True, "report_to": "none", "disable_tqdm": True}
    weights = []
    for damaged in ([], ["checkpoint-4"], ["checkpoint-4", "checkpoint-2"]):
        for name in damaged:
            flip(tmp_path / name / "model.safetensors")
        shutil.rmtree(tmp_path / "checkpoint-5", ignore_errors=True)
        (tmp_path / "stage.json").unlink(missing_ok=True)
        train(CementTrainer, clip, tmp_path, tiny.pairs(16), 8, fields)
        weights.append(weights_hash(tmp_path))
    assert len(set(weights)) == 1
    resumed, anew = (line for line in capsys.readouterr().out.splitlines() if "cannot be resumed" in line)
    assert resumed.endswith("(model.safetensors is damaged): training resumes from checkpoint-2")
    assert anew.endswith("from the beginning")


def test_a_damaged_summary_log_or_model_is_an_error_that_names_the_file(clip, tmp_path):
    arguments = {"max_steps": 2, "logging_steps": 1, "use_cpu": True, "report_to": "none", "disable_tqdm": True}

    def run() -> StageSummary:
        return train(InfoNCETrainer, clip, tmp_path, tiny.pairs(8), 4, arguments)

    cost = run()
    assert read_summary(tmp_path) == cost == run()
    losses = [line["loss"] for line in read_history(tmp_path) if "loss" in line]
    assert len(losses) == 2
    log, summary = tmp_path / "history.json", tmp_path / "stage.json"
    whole = log.read_text()
    log.write_text(whole.replace('"step": 2', '"step": 6'))
    with pytest.raises(ValueError, match=r"history\.json .*damaged: .*sha256 .* stage\.json"):
        read_history(tmp_path)
    log.write_text(whole)
    summary.write_text(summary.read_text().replace('"steps": 2', '"steps": 3'))
    with pytest.raises(ValueError, match=r"stage\.json .*damaged: .*sha256"):
        run()
    summary.write_text(summary.read_text().replace('"steps": 3', '"steps": 2'))
    model = tmp_path / "model.safetensors"
    content = model.read_bytes()
    model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"model\.safetensors .*damaged: .*sha256 .* stage\.json"):
        run()
    summary.unlink()
    assert run().steps == 2  # as the error says


def test_an_adapter_is_merged_into_the_folder_of_its_stage_and_kept_beside_it(clip, tmp_path):
    fields = {"max_steps": 2, "use_cpu": True, "report_to": "none", "disable_tqdm": True, "learning_rate": 1e-2}

    def run() -> StageSummary:
        return train(InfoNCETrainer, clip, tmp_path, tiny.pairs(8), 4, {**fields, "peft": "lora"})

    cost = run()
    assert run() == cost
    plain, info = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    adapter = load_backbone(tmp_path / "adapter")
    assert torch.equal(plain.logit_scale, adapter.get_base_model().logit_scale)
    changed = plain.text_model.encoder.layers[0].self_attn.q_proj.weight
    unchanged = adapter.get_base_model().text_model.encoder.layers[0].self_attn.q_proj.base_layer.weight
    assert (changed - unchanged).abs().max() > 1e-5
    AutoProcessor.from_pretrained(tmp_path / "adapter")
    flip(tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(ValueError, match=r"adapter_model\.safetensors .*damaged: .*sha256"):
        run()
