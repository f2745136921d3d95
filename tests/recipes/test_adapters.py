"""A recipe that trains adapters, by the command of the docs: plain models beside them, scored and resumed. 20 s."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import CLIPModel

from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.modeling import load_backbone
from tests import processes, tolerances

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]
SMALL = "--dataset_rows 96 --batch_size 16 --max_steps 4 --save_steps 4 --evaluation_items 5 --controls plain"
TEXTS = ["a red cube left of a blue ball", "a green ring"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    page = (REPOSITORY / "docs" / "adapters.md").read_text()
    (line,) = re.findall(r"^(accelerate launch recipes/slipform\.py --peft lora) *#.*$", page, re.MULTILINE)
    program, *words = shlex.split(line)
    command = [Path(sys.executable).parent / program, *words, *SMALL.split()]
    command += ["--weight_average_decay", "0.5", "--output_dir", str(folder / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = processes.run(command, cwd=REPOSITORY, env=environment, timeout=600)
    # judged by what it wrote: an interpreter may abort at exit after all work is done
    assert (folder / "run" / "results.json").exists(), done.stderr[-4000:]
    (folder / "terminal.txt").write_text(done.stdout)
    return folder / "run"


@pytest.mark.parametrize("place", ["method", "controls/plain"])
def test_each_model_is_plain_with_its_adapter_beside_it(run, place):
    _, report = CLIPModel.from_pretrained(run / place, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    adapter = load_backbone(run / place / "adapter")
    assert adapter.active_peft_config.base_model_name_or_path == str(run / "base")
    base = CLIPModel.from_pretrained(run / "base").state_dict()
    merged = CLIPModel.from_pretrained(run / place).state_dict()
    changed = {name for name in base if not torch.equal(base[name], merged[name])}
    pattern = (
        r"(text|vision)_model\.encoder\.layers\.\d+\.(self_attn\.(q|k|v|out)_proj|mlp\.fc[12])\.weight|logit_scale"
    )
    assert changed == {name for name in base if re.fullmatch(pattern, name)}


def test_an_adapter_has_the_embeddings_of_the_merged_model(run):
    merged, adapter = (Embedder(run / place, device="cpu") for place in ("method", "method/adapter"))
    actual, expected = adapter.texts(TEXTS).vectors, merged.texts(TEXTS).vectors
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerances.embedding())


def test_the_report_says_what_was_trained(run):
    report = " ".join((run / "report.md").read_text().split())
    assert "adapters (lora)" in report
    assert "(decay 0.5, from step 0 on)" in report
    shown = (run.parent / "terminal.txt").read_text()
    assert shown.count("An adapter of 30 modules: ") == 2 * 3  # method and control, with three seeds
    assert re.search(r"average of its weights over 4 steps \(decay 0.5\).* 6\.2%", shown)
