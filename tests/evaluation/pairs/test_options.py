"""Options of models that score pairs (about 2 s)."""

from __future__ import annotations

import json

import pytest
from transformers import CLIPConfig

import hfcomp
from hfcomp import cli
from hfcomp.evaluation import evaluate
from hfcomp.evaluation.pairs.options import PairOptions
from tests import tiny
from tests.evaluation.pairs import readers

MODELS = "hfcomp/evaluation/models.py"


@pytest.fixture(scope="module")
def places(clip, tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    tiny.pairs(4).to_parquet(folder / "rows.parquet")
    llava = readers.llava(folder / "llava", CLIPConfig.from_pretrained(clip).vision_config)
    return {"clip": clip, "llava": llava, "rows": str(folder / "rows.parquet")}


@pytest.mark.follows("hfcomp/evaluation/pairs/models.py", "Choose another answer or another model.")
def test_question_and_answer_are_recorded(places, tmp_path):
    words = ["evaluate", str(places["llava"]), "--benchmarks", places["rows"], "--device", "cpu", "--blind", "none"]
    words += ["--vqa_prompt", "Is it shown? {text}", "--vqa_answer", "no"]
    cli.main([*words, "--no_cache", "--no_page", "--output_dir", str(tmp_path / "out")])
    facts = json.loads((tmp_path / "out/results.json").read_text())["models"]["llava"]
    assert facts["prompt"] == "USER: <image>\nIs it shown? {text} ASSISTANT:" and facts["answer"] == "'no', 'Ġno'"


@pytest.mark.follows(MODELS, "Remove the name.")
@pytest.mark.follows(MODELS, "no model is scored with VQAScore. Remove them.")
@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("llava", {"vqa_prompt": "Is it shown?"}, r"vqa_prompt: found 'Is it shown\?', expected {text}"),
        ("llava", {"vqa_answer": " "}, "vqa_answer: found ' '"),
        ("llava", {"vqa_answer": "Certainly!"}, "vqa_answer: found 'Certainly!'.*'C'.*llava.*single token"),
        ("clip", {"vqa_answer": "no"}, "no effect"),
        ("clip", {"matching_head": ("clip",)}, "matching_head: .*clip.* has no matching head, expected a Blip.*Flava"),
        ("clip", {"matching_head": ("other",)}, "matching_head: found 'other', expected one of the models clip"),
    ],
)
def test_wrong_options_are_refused_before_any_data_is_read(places, monkeypatch, model, options, message):
    monkeypatch.setattr(evaluate, "load_benchmarks", lambda *words, **settings: pytest.fail("data is read"))
    with pytest.raises(ValueError, match=message):
        hfcomp.evaluate({model: places[model]}, benchmarks=places["rows"], pairs=PairOptions(**options))
