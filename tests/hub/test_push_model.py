"""Trained models on the way to the Hub and back, against the stand-in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import HfApi
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, AutoProcessor, pipeline

from hfcomp import cli
from hfcomp.checksums import read_checked
from hfcomp.hub.models import push_model
from hfcomp.hub.options import ModelPushOptions
from hfcomp.hub.repositories import PUSHED_FILE, pushes_of
from hfcomp.modeling import OBJECTIVE_STATE_FILE, checkpoints
from tests import tiny
from tests.hub.repositories import OTHER_TOKEN, READ_TOKEN, WRITE_TOKEN, WRONG_TOKEN, File
from tests.hub.running import run_in_hub
from tests.hub.runs import NOT_SENT, SENT, finished_run


@pytest.fixture
def run(clip, tmp_path) -> Path:
    return finished_run(tmp_path / "runs" / "mine", clip)


def push(folder: Path, api: HfApi | None = None, repo: str = "me/mine", **options: object) -> list[str]:
    logged: list[str] = []
    push_model(folder, ModelPushOptions(repo=repo, **options), log=logged.append, api=api)
    return logged


KINDS = ("clip", "siglip", "siglip2", "metaclip2")
TEXTS = ["a red cube on a blue ball", "a cone"]
READ_BACK = """
import json
from transformers import AutoModel, AutoProcessor, pipeline
from hfcomp.modeling import load_backbone
_, info = AutoModel.from_pretrained("me/mine", output_loading_info=True)
AutoProcessor.from_pretrained("me/mine")
pipeline("zero-shot-image-classification", model="me/mine", device="cpu")
print(json.dumps([len(info["missing_keys"]), len(info["unexpected_keys"]), type(load_backbone("me/mine")).__name__]))
"""


@pytest.mark.slow
def test_a_private_model_loads_by_its_id(hub, connect, run):
    push(run, connect(WRITE_TOKEN), private=True)
    assert json.loads(run_in_hub(hub, READ_BACK)) == [0, 0, "CLIPModel"]


@pytest.fixture
def pulled(hub, connect, request, tmp_path, monkeypatch) -> Path:
    """A model of each kind, pushed and downloaded."""
    monkeypatch.setattr(tiny, "TEXT_LENGTH", 64)  # to which transformers' pipeline pads the texts of a SigLIP
    model = getattr(tiny, request.param)(tmp_path / "model")
    api = connect(WRITE_TOKEN)
    push(finished_run(tmp_path / "run", model), api)
    return Path(api.snapshot_download("me/mine", local_dir=tmp_path / "pulled"))


@pytest.mark.parametrize("pulled", KINDS, indirect=True)
def test_a_pushed_model_is_what_transformers_loads(pulled):
    _, info = AutoModel.from_pretrained(pulled, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    classify = pipeline("zero-shot-image-classification", model=str(pulled), device="cpu")
    scores = classify(tiny.image(1), candidate_labels=TEXTS, hypothesis_template="{}")
    logits = embeddings(pulled).logits_per_image[0]
    is_siglip = AutoModel.from_pretrained(pulled).config.model_type == "siglip"
    expected = logits.sigmoid() if is_siglip else logits.softmax(dim=-1)
    by_label = {score["label"]: score["score"] for score in scores}
    assert [by_label[text] for text in TEXTS] == pytest.approx(expected.tolist(), rel=1e-5)


@pytest.mark.parametrize("pulled", KINDS, indirect=True)
def test_sentence_transformers_embeds_as_the_model_does(pulled):
    why = "sentence-transformers is not installed (pip install 'hfcomp[magic]')"
    library = pytest.importorskip("sentence_transformers", reason=why)
    model = library.SentenceTransformer(str(pulled), device="cpu")
    expected = embeddings(pulled)
    for inputs, kind in ((TEXTS, "text"), ([tiny.image(1)], "image")):
        unit_vectors = torch.nn.functional.normalize(model.encode(inputs, convert_to_tensor=True), dim=-1)
        # unit vectors of some dozen fp32 entries, summed in another order
        torch.testing.assert_close(unit_vectors, expected[f"{kind}_embeds"], rtol=0, atol=1e-6)


def embeddings(folder: Path) -> Any:
    """The model's outputs for the texts and an image, with texts padded as in training."""
    model, processor = AutoModel.from_pretrained(folder), AutoProcessor.from_pretrained(folder)
    padding = "max_length" if model.config.model_type == "siglip" else True
    with torch.no_grad():
        return model(**processor(text=TEXTS, images=tiny.image(1), padding=padding, return_tensors="pt"))


def test_a_run_is_pushed_in_one_commit_without_what_is_of_this_machine(hub, connect, run):
    logged = push(run, connect(WRITE_TOKEN), private=True)
    pushed = hub.repository(None, "me/mine")
    assert pushed.private and len(pushed.commits) == 2
    assert pushed.files.keys() - {".gitattributes"} == SENT
    assert f"not uploaded: {', '.join(NOT_SENT)}" in logged
    assert logged[-1].startswith(f"pushed to {hub.address}/me/mine: 9 files, commit {pushed.commits[-1].oid[:8]}")
    for name in ("model.safetensors", OBJECTIVE_STATE_FILE, "config.json"):
        assert pushed.files[name].content == (run / "method" / name).read_bytes()
    for name in ("README.md", "config.yaml", "results.json"):
        text = pushed.files[name].content.decode()
        assert "somebody" not in text and "some body" not in text and str(run) not in text, name
    assert 'from_pretrained("me/mine")' in pushed.files["README.md"].content.decode()
    config = yaml.safe_load(pushed.files["config.yaml"].content)
    assert config == {"dataset": "LOCAL/pairs", "output_dir": "LOCAL/mine", "seed": 1}
    (run.parent / "results.json").write_bytes(pushed.files["results.json"].content)
    results = read_checked(run.parent / "results.json", "")
    assert results["models"]["base"] == {"path": "LOCAL/base"} and "push_to_hub" not in results["config"]


def test_a_control_is_pushed_by_its_name_with_a_card(hub, connect, run):
    push(run, connect(WRITE_TOKEN), model="controls/plain")
    files = hub.repository(None, "me/mine").files
    assert OBJECTIVE_STATE_FILE not in files and "results.json" in files
    card = files["README.md"].content.decode()
    assert "# plain" in card and 'AutoModel.from_pretrained("me/mine")' in card


def test_a_model_alone_is_pushed_and_its_folder_may_not_be_written_to(hub, connect, clip, tmp_path, monkeypatch):
    folder = shutil.copytree(clip, tmp_path / "model")
    monkeypatch.setattr("hfcomp.hub.models.record_push", _full_disk)
    logged = push(folder, connect(WRITE_TOKEN))
    assert hub.repository(None, "me/mine").files.keys() - {".gitattributes"} == {
        *(path.name for path in clip.iterdir()),
        "README.md",
    }
    assert "--force" in logged[-2] and logged[-1].startswith("pushed to")


def _full_disk(*_):
    raise OSError(28, "No space left on device")


def test_a_broken_push_shows_nothing_and_the_same_call_resumes(hub, connect, run):
    api = connect(WRITE_TOKEN)
    hub.break_uploads(after=1)
    with pytest.raises(ValueError, match="^model me/mine .*not pushed: .*broken in the middle"):
        push(run, api)
    assert list(hub.repository(None, "me/mine").files) == [".gitattributes"] and len(hub.blobs) == 1
    hub.fix_uploads()
    before = hub.count("PUT /lfs/")
    push(run, api)
    assert hub.count("PUT /lfs/") - before == 1 and hub.repository(None, "me/mine").files.keys() > SENT


def test_a_later_push_takes_the_place_of_the_earlier_one(hub, connect, clip, run):
    api = connect(WRITE_TOKEN)
    push(run, api)
    logged = push(run, api, model="controls/plain")
    pushed = hub.repository(None, "me/mine")
    assert "1 earlier ones removed" in logged[-1] and OBJECTIVE_STATE_FILE not in pushed.files
    assert pushes_of(run) == [
        {"address": f"{hub.address}/me/mine", "branch": "main", "commit": pushed.commits[-1].oid}
    ]
    commits = len(pushed.commits)
    push(run, api, model="controls/plain")
    assert len(pushed.commits) == commits


def test_commits_of_others_are_not_replaced(hub, connect, run):
    api, other = connect(WRITE_TOKEN), hub.create("models", "me/mine")
    other.commit("by hand", {**other.files, "notes.md": File(b"mine"), "model.safetensors": File(b"1", lfs=True)})
    with pytest.raises(ValueError, match=r"main .*2 files .*'by hand'.*--force.*--revision"):
        push(run, api)
    assert len(other.commits) == 2
    push(run, api, revision="second")
    assert len(other.commits) == 2 and other.branches["second"][-1].files.keys() >= {*SENT, "notes.md"}
    push(run, api, force=True)
    assert other.files["notes.md"].content == b"mine" and other.files.keys() >= SENT
    other.commit("again by hand", {**other.files, "config.json": File(b"{}")})
    with pytest.raises(ValueError, match="'again by hand'"):
        push(run, api)


def test_a_push_whose_answer_was_lost_is_known_by_its_files(hub, connect, run):
    api = connect(WRITE_TOKEN)
    push(run, api)
    (run / PUSHED_FILE).unlink()
    push(run, api)
    assert len(hub.repository(None, "me/mine").commits) == 2 and len(pushes_of(run)) == 1


def test_a_commit_that_comes_in_between_is_kept(hub, connect, run, monkeypatch):
    api = connect(WRITE_TOKEN)
    upload = api.preupload_lfs_files

    def meanwhile(*given, **named):
        upload(*given, **named)
        repository = hub.repository(None, "me/mine")
        repository.commit("meanwhile", {**repository.files, "notes.md": File(b"mine")})

    monkeypatch.setattr(api, "preupload_lfs_files", meanwhile)
    with pytest.raises(ValueError, match="not pushed: .*412"):
        push(run, api)
    assert hub.repository(None, "me/mine").files.keys() == {".gitattributes", "notes.md"}


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (WRONG_TOKEN, "Invalid credentials in Authorization header"),
        (READ_TOKEN, "don't have the rights to create a model"),
        (OTHER_TOKEN, 'under the namespace "me"'),
        (False, "Invalid username or password"),
    ],
)
def test_without_the_right_to_write_nothing_is_made(hub, connect, run, token, words):
    with pytest.raises(ValueError, match="^model me/mine .*not pushed: .*hf auth login") as raised:
        push(run, connect(token))
    said = str(raised.value)
    assert words in said and "\n" not in said and str(token) not in said and not hub.repositories
    assert "uploaded" not in said  # nothing was


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("token", [READ_TOKEN, OTHER_TOKEN])
def test_an_existing_repository_is_not_written_to_without_the_right(hub, connect, run, token, private):
    other = hub.create("models", "me/mine", private=private)
    with pytest.raises(ValueError, match="^model me/mine .*not pushed: .*hf auth login"):
        push(run, connect(token))
    assert len(other.commits) == 1


def test_nothing_private_goes_into_a_public_repository(hub, connect, run):
    hub.create("models", "me/mine")
    with pytest.raises(ValueError, match="me/mine .*public.*--private"):
        push(run, connect(WRITE_TOKEN), private=True)


def test_a_hub_that_is_down_is_no_refusal(hub, connect, run):
    connect(WRITE_TOKEN)
    with pytest.raises(ValueError, match=r"refused\. .*HF_HUB_OFFLINE") as raised:
        push(run, HfApi(endpoint="http://127.0.0.1:9", token=WRITE_TOKEN))
    assert "auth login" not in str(raised.value)


def refusal_line(*words: object) -> str:
    """The line with which the command ends; it does not get as far as the Hub."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(["push", *map(str, words), "--repo", "me/mine", "--dry_run"])
    return str(stopped.value)


def test_a_dry_run_lists_files_and_sizes(run, capsys):
    cli.main(["push", str(run), "--repo", "me/mine", "--private", "--dry_run"])
    said = capsys.readouterr().out.splitlines()
    start = said.index("would push to me/mine (private), branch main:")
    assert {line.split()[-1] for line in said[start + 1 : -1]} == SENT
    assert said[start + 1].endswith("B  model.safetensors") and said[-1].endswith("in 9 files")


def test_an_unfinished_run_and_what_is_no_run_are_refused(run, tmp_path, clip):
    assert ": controls/plain, method." in refusal_line(run, "--model", "control/plain")
    (run / "finished").unlink()
    assert "no file 'finished'" in refusal_line(run)
    assert "nowhere is not a folder" in refusal_line(tmp_path / "nowhere")
    assert ": mine/controls/plain, mine/method" in refusal_line(run.parent)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "manifest.json").write_text("{}")
    assert f"`hfcomp push-dataset {tmp_path / 'set'}`" in refusal_line(tmp_path / "set")
    assert "--model base" in refusal_line(clip, "--model", "base")


def test_a_damaged_model_is_refused(run):
    path = run / "method" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert "model.safetensors is damaged" in refusal_line(run)
    plain = run / "controls" / "plain"
    (plain / "model.safetensors").write_bytes(bytes(content)[:-9])
    assert "plain: the weights are damaged" in refusal_line(run, "--model", "controls/plain")
    (plain / "model.safetensors").rename(plain / "pytorch_model.bin")
    assert "no weights in safetensors" in refusal_line(plain)


def test_a_model_without_its_processor_is_refused(clip, tmp_path):
    folder = shutil.copytree(clip, tmp_path / "model")
    for name in ("processor_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert "has no processor" in refusal_line(folder) and "save_pretrained" in refusal_line(folder)


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("tokenizer_config.json", "name_or_path", "/home/somebody/clip", "name_or_path is '/home/somebody/clip'"),
        ("config.json", "note", "C:\\Users\\somebody", "note is 'C:"),
        ("config.json", "note", WRITE_TOKEN, "config.json contains a Hub token"),
    ],
)
def test_a_token_or_a_path_in_a_file_is_refused(clip, tmp_path, name, key, value, words):
    folder = shutil.copytree(clip, tmp_path / "model")
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**content, key: value}))
    said = refusal_line(folder)
    assert words in said and WRITE_TOKEN not in said


def test_an_adapter_is_pushed_if_others_have_its_base(hub, connect, clip, tmp_path):
    adapter = get_peft_model(AutoModel.from_pretrained(clip), LoraConfig(r=2, target_modules=["q_proj"]))
    folder = tmp_path / "adapter"
    adapter.save_pretrained(folder)
    (folder / "README.md").unlink()
    assert f"base_model_name_or_path is {str(clip)!r}" in refusal_line(folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": "me/base"}))
    push(folder, connect(WRITE_TOKEN))
    files = hub.repository(None, "me/mine").files
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md"} <= files.keys()


def test_a_siglip_comes_with_what_sentence_transformers_needs(hub, connect, siglip, tmp_path):
    folder = shutil.copytree(siglip, tmp_path / "model")
    logged = push(folder, connect(WRITE_TOKEN))
    files = hub.repository(None, "me/mine").files
    settings = json.loads(files[checkpoints.MODULE_CONFIG_FILE].content)
    assert settings["processing_kwargs"] == {"text": {"padding": "max_length", "max_length": tiny.TEXT_LENGTH}}
    assert "modules.json" in files
    assert any(f"at most {tiny.TEXT_LENGTH} tokens" in line for line in logged)
