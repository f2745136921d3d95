"""The hash of a model's weights (under 1 s)."""

from __future__ import annotations

import hashlib

import pytest

from hfcomp.evaluation.encoding.identity import weights_hash


def test_the_hash_of_weights_reads_all_shards_in_order(tmp_path):
    for name, content in (("b.safetensors", b"two"), ("a.safetensors", b"one"), ("config.json", b"{}")):
        (tmp_path / name).write_bytes(content)
    assert weights_hash(tmp_path) == f"sha256:{hashlib.sha256(b'onetwo').hexdigest()[:16]}"
    assert weights_hash(tmp_path / "b.safetensors") == f"sha256:{hashlib.sha256(b'two').hexdigest()[:16]}"
    with pytest.raises(ValueError, match=r"no \*\.safetensors"):
        weights_hash(tmp_path / "none")
