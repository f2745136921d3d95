"""`hfcomp convert` on the command line, and with CLIP's real vocabulary."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from transformers import AutoProcessor

from hfcomp import cli
from hfcomp.sandbox.bases import base_folder
from tests import tiny
from tests.convert import worlds
from tests.convert.worlds import Shape


def run_convert(capsys, *words) -> str:
    capsys.readouterr()
    cli.main(["convert", *map(str, words)])
    return capsys.readouterr().out


@pytest.fixture
def negclip(tmp_path, old_clip):
    """A file as NegCLIP's authors publish it."""
    shape = Shape(width=768, head_width=64, inner=96, layers=1, text_heads=1)
    weights = worlds.state(worlds.model(shape, worlds.vocabulary(old_clip)))
    content = {"epoch": 5, "state_dict": {f"module.{name}": value for name, value in weights.items()}}
    torch.save(content, tmp_path / "negclip.pth")
    return tmp_path / "negclip.pth"


def test_a_file_becomes_a_folder_and_says_what_it_was(tmp_path, negclip, old_clip, capsys):
    folder = tmp_path / "negclip"
    said = run_convert(capsys, negclip, "--output", folder, "--pretrained", "openai", "--processor", old_clip)
    assert said.splitlines() == [
        "negclip.pth: CLIP of open_clip or OpenAI",
        "activation: quick_gelu, from --pretrained openai",
        "weights: under 'state_dict', prefix 'module.' removed",
        "images: 64 pixels, bicubic, shortest, from --pretrained openai",
        "unused: 1 (epoch)",
        f"written: {folder}",
    ]
    record = json.loads((folder / "conversion.json").read_text())
    assert record["source"] == "negclip.pth" and str(tmp_path) not in json.dumps(record)
    assert record["attention_heads"] == {"image": 12, "text": 1}
    said = run_convert(capsys, folder, "--to", "open_clip", "--output", tmp_path / "back")
    assert "negclip: open_clip\nactivation: quick_gelu, from config.json (hidden_act)\nnote: the vocabulary" in said


def test_mistakes_are_one_line(tmp_path, negclip, clip):
    for words, what in (
        ([negclip], "--pretrained openai"),
        ([clip, "--to", "open_clip", "--pretrained", "openai"], "--pretrained only applies to open_clip"),
        ([tmp_path / "none.pt"], "no file .*none.pt"),
        ([clip, "--int8"], "--int8 only applies to ONNX. Add --to onnx"),
        ([clip, "--stretch_positions", 36, "--prefix", "a"], "--prefix .*not to --stretch_positions. Remove it"),
    ):
        with pytest.raises(SystemExit, match=f"^error: .*{what}"):
            cli.main(["convert", *map(str, words), "--output", str(tmp_path / "clip")])


@pytest.mark.skipif("HFCOMP_REAL_DATA" not in os.environ, reason="needs HFCOMP_REAL_DATA with CLIP's vocabulary")
def test_clip_s_own_vocabulary(tmp_path, capsys):
    vocabulary = Path(os.environ["HFCOMP_REAL_DATA"]) / "clip_tokenizer"
    network = worlds.model(Shape(width=768, head_width=64, inner=96, layers=1, text_heads=1), 49_408)
    torch.save(worlds.state(network), tmp_path / "a.pt")
    words = ("--model", "ViT-B-32-quickgelu", "--processor", vocabulary)
    said = run_convert(capsys, tmp_path / "a.pt", "--output", tmp_path / "clip", *words)
    assert "activation: quick_gelu, from --model ViT-B-32-quickgelu" in said
    processor = AutoProcessor.from_pretrained(tmp_path / "clip")
    row = processor(text="a photo of a cat")["input_ids"]
    assert row in ([49406, 320, 1125, 539, 320, 2368, 49407], [[49406, 320, 1125, 539, 320, 2368, 49407]])
    said = run_convert(capsys, tmp_path / "clip", "--to", "open_clip", "--output", tmp_path / "back")
    assert "note" not in said


@pytest.mark.follows("hfcomp/modeling/backbones.py", "Convert it: hfcomp convert")
def test_a_folder_for_open_clip_says_how_it_is_evaluated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.main(["convert", str(base_folder("clip")), "--to", "open_clip", "--output_dir", "for_open_clip"])
    rows = tiny.pairs(4)
    rows.to_parquet("rows.parquet")
    evaluate = [
        "evaluate",
        "--benchmarks",
        "rows.parquet",
        "--no_cache",
        "--no_page",
        "--blind",
        "none",
        "--output",
        "out",
    ]
    with pytest.raises(SystemExit) as caught:
        cli.main(["levels", "for_open_clip"])
    advised = str(caught.value).partition("Convert it: hfcomp ")[2].split()
    cli.main(advised)
    cli.main([*evaluate, advised[-1]])
    assert (tmp_path / "out" / "results.json").is_file()
