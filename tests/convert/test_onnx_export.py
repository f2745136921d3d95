"""Both towers as ONNX graphs, run as a user without hfcomp would run them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from transformers import AutoProcessor

from hfcomp import Embedder, cli
from hfcomp.convert import export_onnx, onnx_export
from tests import families, tiny

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

TEXTS = ["a red cube on a blue ball", "a ring", "a red cube " * 30]


def run(folder, name, inputs):
    session = runtime.InferenceSession(folder / "onnx" / f"{name}.onnx")
    return session.run(None, {node.name: inputs[node.name] for node in session.get_inputs()})[0]


def assert_same_embeddings(source, folder):
    embedder, processor, images = Embedder(source), AutoProcessor.from_pretrained(folder), [tiny.image(0)]
    pixels = processor.image_processor(images, return_tensors="np")
    np.testing.assert_allclose(run(folder, "vision_model", pixels), embedder.images(images), atol=2e-6)
    padding = "max_length" if embedder.tokenizer.pad_to_full else True
    for texts in (TEXTS, TEXTS[:1]):
        ids = processor.tokenizer(texts, truncation=True, padding=padding, return_tensors="np")
        np.testing.assert_allclose(run(folder, "text_model", ids), embedder.texts(texts).vectors, atol=2e-6)


@pytest.mark.follows("hfcomp/convert/command.py", "--int8 only applies to ONNX. Add --to onnx, or remove it.")
@pytest.mark.follows("hfcomp/convert/onnx_export.py", "Use a model whose images have one size.")
@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_graphs_embed_as_the_model(name, request, tmp_path, capsys):
    source, folder = request.getfixturevalue(name), tmp_path / "onnx"
    cli.main(["convert", str(source), "--to", "onnx", "--int8", "--output", str(folder)])
    said = capsys.readouterr().out
    assert_same_embeddings(source, folder)
    record = json.loads((folder / "conversion.json").read_text())
    for tower in ("vision_model", "text_model"):
        assert f"{tower}.onnx: largest difference from pytorch " in said
        cosine = record["onnx"][f"{tower}_quantized"]["lowest_cosine_to_fp32"]
        assert f"{tower}_quantized.onnx: lowest cosine to fp32 {cosine:.4g}" in said and 0.99 < cosine < 1
        sizes = [(folder / "onnx" / f"{tower}{end}.onnx").stat().st_size for end in ("", "_quantized")]
        assert sizes[1] < sizes[0]
    model = Embedder(source).backbone
    bias = model.logit_bias.item() if name == "siglip" else 0
    assert record["similarity"] == {"scale": pytest.approx(model.logit_scale.exp().item()), "bias": bias}
    assert (folder / "preprocessor_config.json").is_file() and (folder / "config.json").is_file()


def test_a_graph_that_differs_leaves_nothing_behind(clip, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export, "_TOLERANCE", 1e-3)
    with pytest.raises(ValueError, match=r"clip: embeddings of vision_model.onnx differ from PyTorch's by .*expected"):
        export_onnx(clip, tmp_path / "onnx")
    assert not list(tmp_path.iterdir())


def test_mistakes_are_named(clip, tmp_path, monkeypatch):
    naflex = families.write_family(tmp_path / "siglip2", "siglip2")
    with pytest.raises(ValueError, match="image tower of a Siglip2Model"):
        export_onnx(naflex, tmp_path / "onnx")
    monkeypatch.setattr(onnx_export, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'hfcomp\[onnx\]'"):
        export_onnx(clip, tmp_path / "onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(families.model_types()) - {*families.WITHOUT_EMBEDDINGS, "siglip2"}))
def test_every_family(name, tmp_path):
    source = families.write_family(tmp_path / name, name)
    export_onnx(source, tmp_path / "onnx")
    assert_same_embeddings(source, tmp_path / "onnx")
