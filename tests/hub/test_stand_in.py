"""What the libraries of Hugging Face do with a Hub, done with the stand-in: it is what later tests rely on."""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

import pytest

from tests.hub.repositories import OTHER_TOKEN, READ_TOKEN, WRONG_TOKEN, File
from tests.hub.running import run_in_hub

PUSH_MODEL = """
import sys
from transformers import AutoModel, AutoProcessor
model, processor = AutoModel.from_pretrained(sys.argv[1]), AutoProcessor.from_pretrained(sys.argv[1])
model.push_to_hub("me/model", private=True)
processor.push_to_hub("me/model")
loaded = AutoModel.from_pretrained("me/model")
assert all((one == other).all() for one, other in zip(model.parameters(), loaded.parameters()))
texts = ["a red cube"]
assert AutoProcessor.from_pretrained("me/model")(text=texts).input_ids == processor(text=texts).input_ids
"""
PUSH_SET = """
from datasets import Dataset, Features, Image, Value, load_dataset
from PIL import Image as Pillow
features = Features({"image": Image(), "caption": Value("string")})
for name, number in (("first", 5), ("second", 3)):
    images = [Pillow.new("RGB", (8, 8), (row, 0, 0)) for row in range(number)]
    rows = Dataset.from_dict({"image": images, "caption": [f"{name} {row}" for row in range(number)]}, features)
    rows.push_to_hub("me/set", name, set_default=name == "first")
assert load_dataset("me/set", split="train")["caption"][:] == [f"first {row}" for row in range(5)]
assert load_dataset("me/set", "second", split="train[1:]")[0]["image"].getpixel((0, 0)) == (1, 0, 0)
streamed = list(load_dataset("me/set", "second", split="train", streaming=True))
assert [row["caption"] for row in streamed] == ["second 0", "second 1", "second 2"]
assert streamed[2]["image"].getpixel((0, 0)) == (2, 0, 0)
"""
UPLOAD = """
import sys
from huggingface_hub import create_repo, upload_folder
create_repo("me/files", repo_type="dataset", exist_ok=True)
upload_folder(repo_id="me/files", repo_type="dataset", folder_path=sys.argv[1])
"""


def test_a_model_and_its_processor_are_pushed_and_loaded(hub, clip):
    run_in_hub(hub, PUSH_MODEL, clip)
    pushed = hub.repository(None, "me/model")
    assert pushed.private and {"config.json", "model.safetensors", "tokenizer.json"} <= pushed.files.keys()
    assert pushed.files["model.safetensors"].lfs and not pushed.files["config.json"].lfs


def test_a_data_set_of_two_configurations_is_pushed_loaded_and_streamed(hub):
    run_in_hub(hub, PUSH_SET)
    files = hub.repository("datasets", "me/set").files
    assert {"first/train-00000-of-00001.parquet", "second/train-00000-of-00001.parquet"} <= files.keys()


def test_a_broken_upload_is_resumed(hub, tmp_path):
    (tmp_path / "files").mkdir()
    for number in range(8):
        (tmp_path / f"files/{number}.bin").write_bytes(bytes([number]) * 100_000)
    hub.break_uploads(after=6)
    assert "broken in the middle" in run_in_hub(hub, UPLOAD, tmp_path / "files", fails=True)
    uploaded = dict(hub.blobs)
    assert len(uploaded) == 6 and list(hub.repository("datasets", "me/files").files) == [".gitattributes"]
    hub.fix_uploads()
    before = hub.count("PUT /lfs/")
    run_in_hub(hub, UPLOAD, tmp_path / "files")
    assert hub.count("PUT /lfs/") - before == 2
    files = hub.repository("datasets", "me/files").files
    assert [files[f"{number}.bin"].content[0] for number in range(8)] == list(range(8))


@pytest.mark.parametrize(
    ("token", "status", "words"),
    [
        (WRONG_TOKEN, 401, "Invalid credentials in Authorization header"),
        (READ_TOKEN, 403, "don't have the rights to create a dataset"),
        (OTHER_TOKEN, 403, 'under the namespace "me"'),
        (None, 401, "Invalid username or password"),
    ],
)
def test_without_the_right_to_write_nothing_is_made(hub, token, status, words):
    code = "from huggingface_hub import create_repo; create_repo('me/set', repo_type='dataset')"
    said = run_in_hub(hub, code, token=token, fails=True)
    assert str(status) in said and words in said and not hub.repositories


READ = """
import json
from huggingface_hub import HfApi, hf_hub_download
found = {}
reads = {"facts": HfApi().dataset_info, "file": lambda name: hf_hub_download(name, "a.txt", repo_type="dataset")}
for name in ("open", "private", "gated"):
    for what, read in reads.items():
        try:
            read(f"me/{name}")
            found[f"{name} {what}"] = "read"
        except Exception as error:
            found[f"{name} {what}"] = f"{error.response.status_code} {type(error).__name__}"
for name, revision, file in (("me/open", "main", "b.txt"), ("me/open", "old", "a.txt"), ("me/none", "main", "a.txt")):
    try:
        hf_hub_download(name, file, repo_type="dataset", revision=revision)
    except Exception as error:
        found[f"{name} {revision} {file}"] = type(error).__name__
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("token", "private", "gated"),
    [
        (READ_TOKEN, "read", "read"),
        (OTHER_TOKEN, "404 RepositoryNotFoundError", "403 GatedRepoError"),
        (None, "401 RepositoryNotFoundError", "401 GatedRepoError"),
    ],
)
def test_private_and_gated_repositories_are_refused_as_the_hub_does(hub, token, private, gated):
    for name in ("open", "private", "gated"):
        made = hub.create("datasets", f"me/{name}", private=name == "private", gated=name == "gated")
        made.commit("a file", {"a.txt": File(b"text")})
    assert json.loads(run_in_hub(hub, READ, token=token)) == {
        "open facts": "read",
        "open file": "read",
        "private facts": private,
        "private file": private,
        "gated facts": "read",
        "gated file": gated,
        "me/open main b.txt": "RemoteEntryNotFoundError",
        "me/open old a.txt": "RevisionNotFoundError",
        "me/none main a.txt": "RepositoryNotFoundError",
    }


def test_parts_of_files_are_answered_with_what_is_known_of_the_whole(hub):
    made = hub.create("datasets", "me/set")
    files = {"small.txt": File(bytes(range(100))), "data/large.parquet": File(bytes(range(200)), lfs=True)}
    hub.blobs[files["data/large.parquet"].sha256] = files["data/large.parquet"].content
    commit = made.commit("two files", files)
    for path, file in files.items():
        address = f"{hub.address}/datasets/me/set/resolve/main/{path}"
        for wanted, part in (
            ("bytes=10-19", slice(10, 20)),
            ("bytes=90-", slice(90, None)),
            ("bytes=-5", slice(-5, None)),
        ):
            with urlopen(Request(address, headers={"Range": wanted})) as answer:
                assert answer.status == 206 and answer.read() == file.content[part]
                assert answer.headers["Content-Range"].endswith(f"/{len(file.content)}")
                assert answer.headers["ETag"] == f'"{file.etag}"'
    code = """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    for path in ("small.txt", "data/large.parquet"):
        facts = get_hf_file_metadata(hf_hub_url("me/set", path, repo_type="dataset"))
        print(facts.commit_hash, facts.etag, facts.size)
    """
    expected = [f"{commit.oid} {file.etag} {len(file.content)}" for file in files.values()]
    assert run_in_hub(hub, code).splitlines() == expected
