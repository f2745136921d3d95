"""Folders of other libraries: networks that only open_clip has, and hostile files, none of which runs code."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import struct
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from hfcomp.errors import MISTAKES
from hfcomp.evaluation.encoding import other_folders
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.objects import ObjectEncoder
from hfcomp.evaluation.models import open_encoder
from tests import tiny, tolerances
from tests.evaluation.test_doors import open_clip_folder, open_clip_model, sentence_transformer

TEXTS = tiny.captions()[:3]


def encode(place) -> np.ndarray:
    encoder = open_encoder(str(place), cache=EmbeddingCache(), device="cpu", batch_size=8, split=False)
    images = encoder.index_images([Image.new("RGB", (40, 50), color) for color in ("red", "blue")]).vectors
    return np.concatenate([images, encoder.index_texts(TEXTS).vectors])


# Networks that only open_clip has


@pytest.fixture
def other(old_clip, tmp_path):
    """A folder whose network transformers does not have, according to its settings."""
    folder = open_clip_folder(old_clip, tmp_path / "other")
    change_json(folder / other_folders.OPEN_CLIP, lambda content: content["model_cfg"].update(multimodal_cfg={}))
    torch.save({}, folder / "open_clip_pytorch_model.bin")
    return folder


def change_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_without_open_clip_the_error_names_it(other, monkeypatch):
    monkeypatch.setattr(other_folders, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="other: .*multimodal_cfg.* pip install open_clip_torch"):
        encode(other)


def test_it_loads_only_the_safetensors(other, old_clip, monkeypatch):
    (model, preprocess, tokenizer), loaded = open_clip_model(other), []
    library = ModuleType("open_clip")
    library.__spec__ = ModuleSpec("open_clip", None)

    def create(name, *, device, load_weights, pretrained_image, pretrained_text):
        logging.warning("random weights")
        assert name == f"local-dir:{other}" and not (load_weights or pretrained_image or pretrained_text)
        return model, None, preprocess

    library.create_model_and_transforms = create
    library.load_checkpoint = lambda model, path: loaded.append(path)
    library.get_tokenizer = lambda name: tokenizer
    monkeypatch.setitem(sys.modules, "open_clip", library)
    monkeypatch.setattr(other_folders, "version", lambda name: {"open_clip_torch": "3.3.0"}[name])
    np.testing.assert_allclose(encode(other), encode(old_clip), atol=tolerances.embedding())
    assert loaded == [str(other / "open_clip_model.safetensors")]
    trust = {"tokenizer_kwargs": {"trust_remote_code": True}}  # which open_clip passes to AutoTokenizer
    change_json(other / other_folders.OPEN_CLIP, lambda content: content["model_cfg"]["text_cfg"].update(trust))
    with pytest.raises(ValueError, match="other: open_clip_config.json sets trust_remote_code"):
        encode(other)


def test_a_real_coca(old_clip, tmp_path):
    """With open_clip installed, which is not among the development tools because it needs torchvision."""
    open_clip = pytest.importorskip("open_clip")
    folder = open_clip_folder(old_clip, tmp_path / "coca")

    def change(content):
        vision, text = content["model_cfg"]["vision_cfg"], content["model_cfg"]["text_cfg"]
        vision |= {"attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True}
        text |= {"context_length": 23, "embed_cls": True, "output_tokens": True, "hf_tokenizer_name": "me/clip"}
        sizes = {"width": 32, "heads": 2, "layers": 2, "attn_pooler_heads": 2, "vocab_size": text["vocab_size"]}
        content["model_cfg"] |= {"custom_text": True, "multimodal_cfg": {"context_length": 24, **sizes}}

    change_json(folder / other_folders.OPEN_CLIP, change)
    name = f"local-dir:{folder}"
    model, _, preprocess = open_clip.create_model_and_transforms(name, load_weights=False)
    save_file(dict(model.state_dict()), folder / "open_clip_model.safetensors")
    own = ObjectEncoder((model, preprocess, open_clip.get_tokenizer(name)))
    vectors = own.index_texts(TEXTS).vectors
    np.testing.assert_allclose(encode(folder)[2:], vectors, atol=tolerances.embedding())


# Hostile files


class Evil:
    """Creates a folder when it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


def header(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


WEIGHTS = {
    "pickle": lambda mark: pickle.dumps(Evil(mark)),
    "huge header": lambda mark: header(b"{}", 2**62),
    "deep header": lambda mark: header(b"[" * 100_000),
    "tensor outside": lambda mark: header(
        b'{"a": {"dtype": "F32", "shape": [8], "data_offsets": [0, 4398046511104]}}'
    ),
    "empty": lambda mark: b"",
}
FILES = {
    "transformers": ("config.json", "tokenizer_config.json", "preprocessor_config.json", "vocab.json"),
    "sentence-transformers": ("config.json", "tokenizer_config.json", "preprocessor_config.json", "modules.json"),
    "open_clip": ("open_clip_config.json", "tokenizer_config.json", "tokenizer.json", "processor_config.json"),
}


@pytest.fixture
def hostile(request, old_clip, tmp_path):
    """A folder of the kind of its first parameter, with the other library's layout."""
    make = {"sentence-transformers": sentence_transformer, "open_clip": open_clip_folder}
    return make.get(request.param, shutil.copytree)(old_clip, tmp_path / "model")


def check(folder, mark, *, must_fail=True):
    try:
        encode(folder)
        assert not must_fail
    except MISTAKES as error:
        assert str(folder) in str(error)
    assert not mark.exists()


@pytest.mark.parametrize("hostile", ["sentence-transformers", "open_clip"], indirect=True)
@pytest.mark.parametrize("content", [*WEIGHTS, "link", "pickle with its own name"])
def test_hostile_weights(hostile, content, tmp_path):
    (path,) = hostile.rglob("*.safetensors")
    path.unlink()
    if content == "link":
        path.symlink_to("/etc/passwd")
    elif content in WEIGHTS:
        path.write_bytes(WEIGHTS[content](tmp_path / "mark"))
    else:
        name = "open_clip_pytorch_model.bin" if "open_clip" in path.name else "pytorch_model.bin"
        path.with_name(name).write_bytes(pickle.dumps(Evil(tmp_path / "mark")))
    check(hostile, tmp_path / "mark")


@pytest.mark.parametrize(
    ("hostile", "name"), [(door, name) for door in FILES for name in FILES[door]], indirect=["hostile"]
)
def test_hostile_settings(hostile, name, tmp_path):
    """First a file that names code in its folder, then one that no parser should follow down."""
    (path,) = hostile.rglob(name)
    if name not in ("modules.json", "vocab.json"):
        kinds = dict.fromkeys(("AutoConfig", "AutoModel", "AutoProcessor", "AutoImageProcessor"), "evil.Evil")
        more = {"auto_map": {**kinds, "AutoTokenizer": ["evil.Evil", "evil.Evil"]}, "trust_remote_code": True}
        change_json(path, lambda content: content.update(more))
        (path.parent / "evil.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'mark')!r})\nclass Evil: ...\n")
        check(hostile, tmp_path / "mark", must_fail=False)
    path.write_text("[" * 200_000)
    check(hostile, tmp_path / "mark", must_fail=name != "processor_config.json")  # which open_clip does not have


@pytest.mark.parametrize("hostile", ["sentence-transformers"], indirect=True)
def test_a_module_outside_its_folder(hostile, tmp_path):
    (hostile / "0_CLIPModel").rename(tmp_path / "outside")
    change_json(hostile / "modules.json", lambda modules: modules[0].update(path="../outside"))
    with pytest.raises(ValueError, match="model: expected a list in modules.json, .* path inside"):
        encode(hostile)
