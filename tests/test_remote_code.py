"""Models with code of their own: without trust nothing runs, and with it what runs is pinned and recorded (25 s)."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, AutoProcessor, CLIPVisionConfig

import hfcomp
from hfcomp import CementConfig, CementTrainer, Embedder, cli
from hfcomp.modeling import load_backbone
from tests import families, tiny
from tests.evaluation.pairs import readers
from tests.hub.repositories import File
from tests.hub.running import connect as connect
from tests.hub.running import hub as hub
from tests.hub.running import only_hub as only_hub

FILE = "hfcomp/remote_code.py"
WRITE_MARK = """
import os
with open(os.environ["TINY_MARK"], "a") as file:
    file.write("ran ")
"""
CODE = {
    "configuration_tiny.py": """
from transformers import ChineseCLIPConfig
class TinyConfig(ChineseCLIPConfig):
    model_type = "tiny_dual"
""",
    "modeling_tiny.py": f"""{WRITE_MARK}
from transformers import ChineseCLIPModel
from .configuration_tiny import TinyConfig
class TinyModel(ChineseCLIPModel):
    config_class = TinyConfig
""",
}
CLASSES = {"AutoConfig": "configuration_tiny.TinyConfig", "AutoModel": "modeling_tiny.TinyModel"}


def add_code(folder, **classes):
    file = folder / "config.json"
    settings = {"model_type": "tiny_dual", "architectures": ["TinyModel"], "auto_map": CLASSES | classes}
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    for name, text in CODE.items():
        (folder / name).write_text(f"{text}# {folder}")  # transformers imports equal code once
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return families.write_family(tmp_path_factory.mktemp("models") / "plain", "chinese_clip")


@pytest.fixture
def model(plain, tmp_path, mark):
    return add_code(shutil.copytree(plain, tmp_path / "tiny"))


@pytest.fixture
def mark(tmp_path, monkeypatch):
    monkeypatch.setenv("TINY_MARK", str(tmp_path / "mark"))
    return tmp_path / "mark"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    tiny.pairs(12).to_parquet(file)
    return file


def loaded(model):
    backbone = AutoModel.from_pretrained(model, trust_remote_code=True)
    return backbone, AutoProcessor.from_pretrained(model, trust_remote_code=True)


def scores(model, rows, **settings):
    results = hfcomp.evaluate({"model": model}, benchmarks=[str(rows)], cache=False, blind="none", **settings)
    return results.to_pandas()["value"].tolist()


@pytest.mark.parametrize(
    "words",
    [
        "evaluate {model} --benchmarks {rows}",
        "train slipform/vit_b32_coco --model {model} --dataset {rows} --output_dir {out}",
        "convert {model} --to open_clip --output {out}",
        "merge {plain} {model} --alpha 0.5 --output_dir {out}",
        "attention {model} --image {image} --text word --output {out}.png",
        "audit {rows} --model {model} --output_dir {out}",
        "push {model} --repo me/tiny",
    ],
)
def test_without_trust_no_command_runs_code(words, model, plain, rows, mark, tmp_path, hub):
    image, out = tmp_path / "image.png", tmp_path / "out"
    tiny.image(0).save(image)
    with pytest.raises(SystemExit, match=r"not run: config.json names configuration_tiny.TinyConfig, modeling_tiny"):
        cli.main(words.format(model=model, plain=plain, rows=rows, image=image, out=out).split())
    assert not mark.exists()


@pytest.mark.follows(FILE, "If you have read and trust the code: hfcomp evaluate {} --trust_remote_code{}")
def test_with_trust_a_folder_scores_like_the_object_and_its_code_is_recorded(model, rows, mark, tmp_path, capsys):
    with pytest.raises(ValueError, match="hfcomp evaluate") as caught:
        scores(str(model), rows)
    command = re.search(r"hfcomp (evaluate \S+ --trust_remote_code),", str(caught.value))[1]
    cli.main([*command.split(), "--benchmarks", str(rows), "--blind", "none", "--output_dir", str(tmp_path / "out")])
    assert mark.read_text() == "ran "
    facts = json.loads((tmp_path / "out/results.json").read_text())["models"]["tiny"]
    assert facts["remote_code"] == {
        name: hashlib.sha256((model / name).read_bytes()).hexdigest() for name in CODE
    }
    assert facts["path"] == str(model) and "revision" not in facts
    for text in (capsys.readouterr().out, (tmp_path / "out/report.md").read_text()):
        assert "its own code runs (--trust_remote_code)" in " ".join(text.split())
    expected = scores(loaded(model), rows)
    assert scores(str(model), rows, trust_remote_code=True) == expected
    texts = Embedder(str(model), trust_remote_code=True).texts(["a red cube"]).vectors
    assert (texts == Embedder(*loaded(model)).texts(["a red cube"]).vectors).all()


def test_changed_code_runs_in_place_of_the_copy_and_of_stored_embeddings(model, rows, mark, tmp_path):
    settings = {"benchmarks": [str(rows)], "cache": tmp_path / "cache", "blind": "none", "trust_remote_code": True}
    first = hfcomp.evaluate(str(model), **settings).models["tiny"]
    (model / "modeling_tiny.py").write_text(CODE["modeling_tiny.py"].replace("ran ", "changed "))
    second = hfcomp.evaluate(str(model), **settings).models["tiny"]
    assert "changed" in mark.read_text()
    assert first["weights"] != second["weights"] and first["remote_code"] != second["remote_code"]


@pytest.mark.follows(FILE, "or load the model yourself and pass the object. Only an object can be trained")
def test_an_object_is_trained(model, mark, tmp_path):
    backbone, processor = loaded(model)
    args = CementConfig(tmp_path / "run", max_steps=1, per_device_train_batch_size=4, report_to="none", use_cpu=True)
    trainer = CementTrainer(model=backbone, args=args, train_dataset=tiny.pairs(8), processing_class=processor)
    trainer.train()
    trainer.save_model()
    assert Embedder(str(tmp_path / "run"), trust_remote_code=True).texts(["a"]).vectors.shape == (1, 24)
    with pytest.raises(ValueError, match="not run"):
        load_backbone(tmp_path / "run")


@pytest.mark.follows(FILE, "It is not run. Load the model yourself and pass the object to hfcomp.evaluate().")
def test_trust_does_not_extend_to_other_places(model, plain, rows, mark, tmp_path):
    adapter = tmp_path / "adapter"
    get_peft_model(loaded(model)[0], LoraConfig(target_modules=["query"])).save_pretrained(adapter)
    mark.unlink()
    with pytest.raises(ValueError, match=f"{model} needs Python code.*base of an adapter"):
        scores(str(adapter), rows, trust_remote_code=True)
    other = add_code(shutil.copytree(plain, tmp_path / "other"), AutoModel="evil/code--modeling.Evil")
    with pytest.raises(ValueError, match="config.json names evil/code--modeling.Evil, which is code in another"):
        scores(str(other), rows, trust_remote_code=True)
    assert not mark.exists()
    assert scores(AutoModel.from_pretrained(plain), rows) == scores(str(plain), rows)


def test_a_module_of_sentence_transformers_is_run_with_trust(clip, rows, mark, tmp_path):
    pytest.importorskip("sentence_transformers")
    folder = tmp_path / "st"
    shutil.copytree(clip, folder / "0_CLIPModel")
    modules = [{"idx": 0, "name": "0", "path": "0_CLIPModel", "type": "custom.Own"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "custom.py").write_text(f"{WRITE_MARK}from sentence_transformers.models import CLIPModel as Own\n")
    with pytest.raises(ValueError, match="'custom.Own'.* If you have read and trust the code: hfcomp evaluate"):
        scores(str(folder), rows)
    assert not mark.exists()
    assert scores(str(folder), rows, trust_remote_code=True) == pytest.approx(scores(str(clip), rows))
    assert mark.read_text() == "ran "


def test_a_pair_model_is_run_with_trust(rows, mark, tmp_path):
    vision = CLIPVisionConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    folder = readers.llava(tmp_path / "llava", vision)
    expected = scores(str(folder), rows)
    code = f"{WRITE_MARK}from transformers import LlavaConfig, LlavaForConditionalGeneration as OwnModel\n"
    (folder / "own.py").write_text(f"{code}class OwnConfig(LlavaConfig):\n    model_type = 'own_llava'\n")
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForImageTextToText": "own.OwnModel"}
    settings = {"model_type": "own_llava", "architectures": ["OwnModel"], "auto_map": classes}
    (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | settings))
    with pytest.raises(ValueError, match="not run: config.json names own.OwnConfig, own.OwnModel"):
        scores(str(folder), rows)
    assert not mark.exists()
    assert scores(str(folder), rows, trust_remote_code=True) == expected


def test_no_file_sets_it(tmp_path):
    for name, change in (("sandbox", "trust_remote_code: true\n"), ("regime", "  own: {trust_remote_code: true}\n")):
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"{(Path('recipes/slipform') / file.name).read_text().rstrip()}\n{change}")
        words = ["train", "slipform", "--report", str(file)] if name == "regime" else ["train", str(file)]
        with pytest.raises(SystemExit, match=rf"{name}.yaml.*trust_remote_code is an option of `hfcomp evaluate`, only on"):
            cli.main(words)


@pytest.fixture
def online(connect, hub, monkeypatch):
    connect(False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub.home / "cache"))


def test_hub(hub, online, model, plain, rows, mark):
    def files(folder):
        return {path.relative_to(folder).as_posix(): File(path.read_bytes()) for path in folder.rglob("*.*")}

    tiny_model = hub.create("models", "me/tiny")
    first = tiny_model.commit("first", files(model)).oid
    with pytest.raises(ValueError) as e:
        scores("me/tiny", rows)
    print(e.value)
    scores("me/tiny", rows, revision=first, trust_remote_code=True)
    print(hub.requests)
    assert 0
