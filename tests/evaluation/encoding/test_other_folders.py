"""Folders of other libraries: networks that only open_clip has, and hostile files, none of which runs code."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from hfcomp.errors import MISTAKES
from hfcomp.evaluation import models
from hfcomp.evaluation.encoding import other_folders
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.other_folders import OPEN_CLIP
from tests import tiny, tolerances
from tests.evaluation.test_doors import open_clip_folder, open_clip_model, sentence_transformer

WEIGHTS = "open_clip_model.safetensors"


def encode(model) -> np.ndarray:
    encoder = models.open_encoder(model, cache=EmbeddingCache(), device="cpu", batch_size=8, split=False)
    images = encoder.index_images([Image.new("RGB", (40, 50), color) for color in ("red", "blue")]).vectors
    return np.concatenate([images, encoder.index_texts(tiny.captions()[:3]).vectors])


def change_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


# Networks that only open_clip has


@pytest.fixture
def coca(old_clip, tmp_path):
    """The settings of a CoCa, with the weights of a CLIP."""

    def change(content):
        vision, text = content["model_cfg"]["vision_cfg"], content["model_cfg"]["text_cfg"]
        vision |= {"attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True}
        text |= {"context_length": 23, "embed_cls": True, "output_tokens": True, "hf_tokenizer_name": "me/clip"}
        sizes = {"width": 32, "heads": 2, "layers": 2, "attn_pooler_heads": 2, "vocab_size": text["vocab_size"]}
        content["model_cfg"] |= {"custom_text": True, "multimodal_cfg": {"context_length": 24, **sizes}}

    folder = open_clip_folder(old_clip, tmp_path / "coca")
    change_json(folder / OPEN_CLIP, change)
    (folder / "open_clip_pytorch_model.bin").write_bytes(b"a pickle")
    return folder


def test_without_open_clip_the_error_names_it(coca, monkeypatch):
    monkeypatch.setattr(other_folders, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="coca: .*multimodal_cfg.* pip install open_clip_torch"):
        encode(coca)


def test_open_clip_loads_only_the_safetensors(coca, old_clip, monkeypatch):
    (model, preprocess, tokenizer), loaded = open_clip_model(coca), []

    def create(name, *, device, load_weights, pretrained_image, pretrained_text):
        logging.warning("random weights")
        assert name == f"local-dir:{coca}" and not (load_weights or pretrained_image or pretrained_text)
        return model, None, preprocess

    library = ModuleType("open_clip")
    library.__spec__ = ModuleSpec("open_clip", None)
    library.create_model_and_transforms, library.get_tokenizer = create, lambda name: tokenizer
    library.load_checkpoint = lambda model, path: loaded.append(path)
    monkeypatch.setitem(sys.modules, "open_clip", library)
    monkeypatch.setattr(models, "version", lambda name: {"open_clip_torch": "3.3.0"}[name])
    np.testing.assert_allclose(encode(coca), encode(old_clip), atol=tolerances.embedding())
    assert loaded == [str(coca / WEIGHTS)]
    trust = {"tokenizer_kwargs": {"trust_remote_code": True}}  # which open_clip passes to AutoTokenizer
    change_json(coca / OPEN_CLIP, lambda content: content["model_cfg"]["text_cfg"].update(trust))
    with pytest.raises(ValueError, match="coca: open_clip_config.json sets trust_remote_code"):
        encode(coca)


def test_a_real_coca(coca):
    """With open_clip installed, which is not among the development tools because it needs torchvision."""
    open_clip = pytest.importorskip("open_clip")
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{coca}", load_weights=False)
    save_file(dict(model.state_dict()), coca / WEIGHTS)
    own = encode((model, preprocess, open_clip.get_tokenizer(f"local-dir:{coca}")))
    np.testing.assert_allclose(encode(coca), own, atol=tolerances.embedding())


# Hostile files

PICKLE = "cos\nmkdir\n(V{}\ntR."  # creates a folder when it is read
CONTENTS = {
    "huge header": (2**62).to_bytes(8, "little"),
    "deep header": (100_000).to_bytes(8, "little") + b"[" * 100_000,
    "tensor outside": (62).to_bytes(8, "little") + b'{"a": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}',
    "empty": b"",
}
FILES = {
    "transformers": ("config.json", "tokenizer_config.json", "preprocessor_config.json", "vocab.json"),
    "sentence-transformers": ("config.json", "tokenizer_config.json", "preprocessor_config.json", "modules.json"),
    "open_clip": (OPEN_CLIP, "tokenizer_config.json", "tokenizer.json", "processor_config.json"),
}


@pytest.fixture
def hostile(request, old_clip, tmp_path):
    make = {"sentence-transformers": sentence_transformer, "open_clip": open_clip_folder}
    return make.get(request.param, shutil.copytree)(old_clip, tmp_path / "model")


def check(folder, *, must_fail=True):
    """Checks that a folder runs no code, and that an error names it."""
    try:
        encode(folder)
        assert not must_fail
    except MISTAKES as error:
        assert str(folder) in str(error)
    assert not folder.with_name("mark").exists()


@pytest.mark.parametrize("hostile", ["sentence-transformers", "open_clip"], indirect=True)
@pytest.mark.parametrize("content", [*CONTENTS, "pickle", "pickle with its own name", "link"])
def test_hostile_weights(hostile, content, tmp_path):
    (path,) = hostile.rglob("*.safetensors")
    path.unlink()
    if content == "link":
        path.symlink_to("/etc/passwd")
    else:
        name = path.name if content != "pickle with its own name" else "pytorch_model.bin"
        path.with_name(name).write_bytes(CONTENTS.get(content, PICKLE.format(tmp_path / "mark").encode()))
    check(hostile)


@pytest.mark.parametrize(
    ("hostile", "name"), [(door, name) for door in FILES for name in FILES[door]], indirect=["hostile"]
)
def test_hostile_settings(hostile, name, tmp_path):
    (path,) = hostile.rglob(name)
    if name not in ("modules.json", "vocab.json"):
        kinds = dict.fromkeys(("AutoConfig", "AutoModel", "AutoProcessor", "AutoImageProcessor"), "evil.Evil")
        more = {"auto_map": {**kinds, "AutoTokenizer": ["evil.Evil", "evil.Evil"]}, "trust_remote_code": True}
        change_json(path, lambda content: content.update(more))
        (path.parent / "evil.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'mark')!r})\nclass Evil: ...\n")
        check(hostile, must_fail=False)
    path.write_text("[" * 200_000)
    check(hostile, must_fail=name != "processor_config.json")  # which open_clip does not have


@pytest.mark.parametrize("hostile", ["sentence-transformers"], indirect=True)
def test_a_module_outside_its_folder(hostile, tmp_path):
    (hostile / "0_CLIPModel").rename(tmp_path / "outside")
    change_json(hostile / "modules.json", lambda modules: modules[0].update(path="../outside"))
    with pytest.raises(ValueError, match="model: expected a list in modules.json, .* path inside"):
        encode(hostile)
