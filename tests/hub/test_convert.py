"""A repository in open_clip's layout is converted from the Hub."""

from __future__ import annotations

from transformers import AutoModel

from tests.convert import worlds
from tests.convert.worlds import SHAPES
from tests.hub.running import run_in_hub


def test_a_repository_of_open_clip(hub, tmp_path, old_clip):
    shape, words = SHAPES["ViT-B-32"], worlds.vocabulary(old_clip)
    network = worlds.model(shape, words)
    source = worlds.write_folder(tmp_path / "source", network, worlds.config(shape, words))
    (source / "open_clip_pytorch_model.bin").write_bytes(b"the same weights, pickled")
    code = """
        import sys
        from huggingface_hub import HfApi
        from hfcomp import cli
        HfApi().create_repo("me/clip")
        HfApi().upload_folder(repo_id="me/clip", folder_path=sys.argv[1])
        cli.main(["convert", "me/clip", "--output", sys.argv[2], "--processor", sys.argv[3]])
    """
    said = run_in_hub(hub, code, source, tmp_path / "clip", old_clip)
    assert "me/clip: CLIP of open_clip or OpenAI\nactivation: quick_gelu, from open_clip_config.json" in said
    assert not any("open_clip_pytorch_model.bin" in request and request.startswith("GET") for request in hub.requests)
    assert AutoModel.from_pretrained(tmp_path / "clip").config.vision_config.hidden_act == "quick_gelu"
