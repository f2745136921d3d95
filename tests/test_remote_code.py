"""Models with code of their own: without trust nothing runs, and with it what runs is pinned and recorded (25 s)."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForImageTextToText, AutoProcessor, CLIPVisionConfig

import hfcomp
from hfcomp import CementConfig, CementTrainer, Embedder, cli
from hfcomp.modeling import load_backbone
from tests import families, tiny
from tests.evaluation.pairs import readers
from tests.hub.repositories import File
from tests.hub.running import connect as connect
from tests.hub.running import hub as hub
from tests.hub.running import only_hub as only_hub

FILE, FIELDS = "hfcomp/remote_code.py", "hfcomp/experiments/recipe_fields.py"
WRITE_MARK = """
import os
with open(os.environ["TINY_MARK"], "a") as file:
    file.write("ran ")
"""
CODE = {
    "configuration_tiny.py": f"""{WRITE_MARK}
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


def set_classes(folder, model_type, **classes):
    file = folder / "config.json"
    settings = {"model_type": model_type, "architectures": ["Own"], "auto_map": classes}
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def add_code(folder, **classes):
    set_classes(folder, "tiny_dual", **(CLASSES | classes))
    for name, text in CODE.items():
        (folder / name).write_text(f"{text}# {folder}")  # transformers imports equal code once
    return folder


def change(model):
    file = model / "modeling_tiny.py"
    file.write_text(file.read_text().replace("ran ", "changed "))


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


def sha256(model, name="modeling_tiny.py"):
    return hashlib.sha256((model / name).read_bytes()).hexdigest()


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
        "audit {rows} --language_model {model} --output_dir {out}",
    ],
)
def test_without_trust_no_command_runs_code(words, model, plain, rows, mark, tmp_path, hub):
    image, out = tmp_path / "image.png", tmp_path / "out"
    tiny.image(0).save(image)
    with pytest.raises(SystemExit, match=r"not run(: config.json names configuration_tiny.TinyConfig, model| here\.)"):
        cli.main(words.format(model=model, plain=plain, rows=rows, image=image, out=out).split())
    assert not mark.exists()


@pytest.mark.follows(FILE, "If you have read and trust the code: hfcomp evaluate {} --trust_remote_code{}")
def test_with_trust_a_folder_scores_like_the_object_and_its_code_is_recorded(model, rows, mark, tmp_path, capsys):
    with pytest.raises(ValueError, match="hfcomp evaluate") as caught:
        scores(str(model), rows)
    command = re.search(r"hfcomp (evaluate \S+ --trust_remote_code),", str(caught.value))[1]
    cli.main(f"{command} --benchmarks {rows} --blind none --no_page --output_dir {tmp_path}/out".split())
    facts = json.loads((tmp_path / "out/results.json").read_text())["models"]["tiny"]
    assert facts["remote_code"] == {name: sha256(model, name) for name in CODE}
    assert facts["path"] == str(model) and "revision" not in facts
    for text in (capsys.readouterr().out, (tmp_path / "out/report.md").read_text()):
        assert "its own code runs (--trust_remote_code)" in " ".join(text.split())
    expected = scores(loaded(model), rows)
    assert scores(str(model), rows, trust_remote_code=True) == expected
    embedder = Embedder(str(model), trust_remote_code=True)
    assert (embedder.texts(["a red cube"]).vectors == Embedder(*loaded(model)).texts(["a red cube"]).vectors).all()
    weights = embedder.weights
    change(model)
    assert Embedder(str(model), trust_remote_code=True).weights != weights and "changed" in mark.read_text()


@pytest.mark.follows(FILE, "or load the model yourself and pass the object. Only an object can be trained")
@pytest.mark.follows(FIELDS, "load the model in Python and pass the object to the trainer.")
def test_an_object_is_trained(model, mark, tmp_path):
    backbone, processor = loaded(model)
    args = CementConfig(tmp_path / "run", max_steps=1, per_device_train_batch_size=4, report_to="none", use_cpu=True)
    trainer = CementTrainer(model=backbone, args=args, train_dataset=tiny.pairs(8), processing_class=processor)
    trainer.train()
    trainer.save_model()
    trainer.create_model_card()
    assert f"its own modeling_tiny.py (sha256:{sha256(model)})" in (tmp_path / "run/README.md").read_text()
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
    native = shutil.copytree(plain, tmp_path / "native")
    set_classes(native, "chinese_clip", **CLASSES)
    other = add_code(shutil.copytree(plain, tmp_path / "other"), AutoModel="evil/code--modeling.Evil")
    with pytest.raises(ValueError, match="config.json names evil/code--modeling.Evil, which is in another repository"):
        scores(str(other), rows, trust_remote_code=True)
    assert scores(str(native), rows) == scores(AutoModel.from_pretrained(plain), rows)
    assert not mark.exists()


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
    (folder / "0_CLIPModel/adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="adapter_config.json names a base model, which is in another repository"):
        scores(str(folder), rows, trust_remote_code=True)


def test_a_pair_model_is_run_with_trust(rows, mark, tmp_path):
    vision = CLIPVisionConfig(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    folder = readers.llava(tmp_path / "llava", vision)
    expected, weights = scores(str(folder), rows), AutoModelForImageTextToText.from_pretrained(folder).state_dict()
    save_file({name: weight.clone() for name, weight in weights.items()}, folder / "model.safetensors")
    code = f"{WRITE_MARK}from transformers import LlavaConfig, LlavaForConditionalGeneration\n"
    code += "class OwnConfig(LlavaConfig):\n    model_type = 'own_llava'\n"
    code += "class OwnModel(LlavaForConditionalGeneration):\n    config_class = OwnConfig\n"
    (folder / "own.py").write_text(code)
    set_classes(folder, "own_llava", AutoConfig="own.OwnConfig", AutoModelForImageTextToText="own.OwnModel")
    with pytest.raises(ValueError, match="not run: config.json names own.OwnConfig, own.OwnModel"):
        scores(str(folder), rows)
    assert not mark.exists()
    assert scores(str(folder), rows, trust_remote_code=True) == expected and mark.exists()


def test_no_file_sets_it(tmp_path):
    recipe, sweep = (tmp_path / name for name in ("recipe.yaml", "sweep.yaml"))
    recipe.write_text(Path("recipes/slipform/sandbox.yaml").read_text() + "\ntrust_remote_code: true\n")
    plan = yaml.safe_load(Path("recipes/slipform/regime.yaml").read_text())
    next(iter(plan["variants"].values()))["trust_remote_code"] = True
    sweep.write_text(yaml.safe_dump(plan))
    for words in (["train", str(recipe)], ["train", "slipform", "--report", str(sweep)]):
        where = Path(words[-1]).name
        with pytest.raises(SystemExit, match=f"{where}.*trust_remote_code is an option of `hfcomp evaluate`, on its"):
            cli.main(words)


@pytest.fixture
def online(connect, hub, monkeypatch):
    connect(False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    template = hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub.home / "cache"))


def upload(hub, name, folder):
    files = {path.relative_to(folder).as_posix(): File(path.read_bytes()) for path in folder.rglob("*.*")}
    return hub.create("models", name).commit("files", files).oid


@pytest.mark.follows(FILE, "Read the code, then write {}@{}")
def test_a_hub_model_runs_the_code_of_its_pinned_commit(hub, online, model, rows, mark, monkeypatch, tmp_path):
    first = upload(hub, "me/tiny", model)
    change(model)
    second = upload(hub, "me/tiny", model)
    with pytest.raises(ValueError, match="not run: config.json names") as caught:
        scores("me/tiny", rows)
    assert f"hfcomp evaluate me/tiny --trust_remote_code --revision {second}," in str(caught.value)
    for branch in ("main", first[:8], None):
        with pytest.raises(ValueError, match="me/tiny: found .*expected a commit of 40 digits") as caught:
            scores("me/tiny", rows, revision=branch, trust_remote_code=True)
    assert not mark.exists()
    newest = str(caught.value).rpartition("write ")[2]
    assert newest == f"me/tiny@{second}"
    settings = {"benchmarks": [str(rows)], "cache": False, "blind": "none", "trust_remote_code": True}
    results = hfcomp.evaluate([f"old=me/tiny@{first}", f"new={newest}"], reference=newest, **settings)
    assert results.reference == "new"
    assert {*mark.read_text().split()} == {"ran", "changed"}
    assert [facts["revision"] for facts in results.models.values()] == [first, second]
    old, new = (facts["remote_code"]["modeling_tiny.py"] for facts in results.models.values())
    assert old != new == sha256(model)
    # Offline, the downloaded commit is found again.
    requests = len(hub.requests)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    words = f"evaluate me/tiny --trust_remote_code --revision {first} --benchmarks {rows} --no_page"
    cli.main([*words.split(), "--output_dir", str(tmp_path / "out")])
    assert f'"revision": "{first}"' in (tmp_path / "out/results.json").read_text() and len(hub.requests) == requests


@pytest.mark.follows(FILE, "Write ID@REVISION for each of several. A folder has no revision.")
def test_a_revision_belongs_to_a_hub_model_and_may_be_a_branch_without_trust(hub, online, plain, rows):
    commit = upload(hub, "me/plain", plain)
    for number, models in ((0, [str(plain)]), (2, ["me/plain", "me/other", str(plain)])):
        with pytest.raises(ValueError, match=f"revision: found 'main' for {number} Hub models"):
            hfcomp.evaluate(models, benchmarks=[str(rows)], revision="main")
    with pytest.raises(ValueError, match="me/plain at 0{40} cannot be downloaded"):
        scores(f"me/plain@{'0' * 40}", rows)
    results = hfcomp.evaluate("me/plain@main", benchmarks=[str(rows)], cache=False, blind="none")
    assert results.models["plain"]["revision"] == commit and results.models["plain"]["path"] == "me/plain"
    assert results.to_pandas()["value"].tolist() == scores(str(plain), rows)
