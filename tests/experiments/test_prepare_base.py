"""Models without a download: complete or absent, in the Hub's layout, an error of the writer ends all."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoProcessor, CLIPConfig

from hfcomp.experiments import prepare
from hfcomp.experiments.prepare import make_base
from hfcomp.modeling.random_clip import write_random_clip
from hfcomp.sandbox.bases import base_folder
from tests import tiny

TOWER = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
TEXT = "a red cube on a blue ball"


def copy_sandbox_base(folder: Path) -> None:
    shutil.copytree(base_folder("clip"), folder, dirs_exist_ok=True)


def words(folder: Path) -> int:
    return len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))


def small() -> CLIPConfig:
    return CLIPConfig(
        text_config=TOWER, vision_config={**TOWER, "image_size": 224, "patch_size": 112}, projection_dim=8
    )


@pytest.fixture(params=["small", "real"])
def vocabulary(request, old_clip) -> tuple[Path, int]:
    """A folder with vocab.json and merges.txt, and the number of its words."""
    if request.param == "small":
        folder = old_clip
    elif "HFCOMP_REAL_DATA" in os.environ:
        folder = Path(os.environ["HFCOMP_REAL_DATA"]) / "clip_tokenizer"
    else:
        pytest.skip("HFCOMP_REAL_DATA is not set; it names a folder with clip_tokenizer/")
    return folder, words(folder)


def test_the_auto_classes_load_it_whole(tmp_path, vocabulary):
    folder, size = vocabulary
    write_random_clip(tmp_path / "base", str(folder), seed=0, config=small())
    model, report = AutoModel.from_pretrained(tmp_path / "base", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    inputs = AutoProcessor.from_pretrained(tmp_path / "base")(
        text=[TEXT, f"{TEXT} " * 40], images=[tiny.image(0), tiny.image(1)], padding=True, truncation=True,
        return_tensors="pt",
    )  # fmt: skip
    assert inputs["input_ids"].shape[1] == 77
    assert inputs["input_ids"][0, 0] == size - 2 and inputs["input_ids"].max() == size - 1
    assert torch.isfinite(model(**inputs).logits_per_image).all()
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_a_kill_leaves_no_half_model_and_the_next_start_mends(tmp_path):
    def interrupt(folder: Path) -> None:
        (folder / "config.json").write_text("{")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_base(tmp_path / "base", interrupt)
    assert not (tmp_path / "base").exists()
    make_base(tmp_path / "base", copy_sandbox_base)
    AutoProcessor.from_pretrained(tmp_path / "base")
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


@pytest.mark.parametrize("vocabulary", [None, "nowhere"])
def test_without_a_vocabulary_the_way_out_is_named(tmp_path, vocabulary):
    with pytest.raises(ValueError, match="vocab.json and merges.txt.*--model openai"):
        write_random_clip(tmp_path / "base", vocabulary, seed=0)


def test_a_process_that_does_not_see_the_base_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "rank", lambda: 1)
    with pytest.raises(RuntimeError, match="base: .*shared disk"):
        make_base(tmp_path / "base", lambda folder: pytest.fail("written by another than the main process"))


def test_a_base_that_is_there_is_kept_and_a_damaged_one_written_again(tmp_path):
    folder, written = tmp_path / "base", []

    def write(part: Path) -> None:
        written.append(part)
        copy_sandbox_base(part)

    make_base(folder, write)
    make_base(folder, write)
    assert len(written) == 1
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    make_base(folder, write)
    assert len(written) == 2 and (folder / "model.safetensors").read_bytes() == whole
