"""Exports both towers of a dual encoder to ONNX, and compares the graphs with the model that they come from."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn

from hfcomp.convert.convert import RECORD_FILE, check_folder, library_versions
from hfcomp.convert.export import load_plain, source_name
from hfcomp.data.images import decode_image
from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.families import family_of
from hfcomp.modeling.backbones import load_processor
from hfcomp.modeling.embedding import encode_images, encode_texts, similarity_scale
from hfcomp.sandbox.rows import retrieval_rows
from hfcomp.writing import replacing_folder, write_json

# Largest distance of a graph from PyTorch, in units of PyTorch's own distance from float64: a graph sums in another
# order, and ONNX Runtime approximates exp and erf in its own way. Graphs of all families were below 2; one with
# dropout was above 100,000.
_TOLERANCE = 16
# Names of a graph's file, input and output: those of transformers.js.
_NAMES = {
    encode_images: ("vision_model", "pixel_values", "image_embeds"),
    encode_texts: ("text_model", "input_ids", "text_embeds"),
}


class _Tower(nn.Module):
    """A tower with batches of several sizes, and the dimensions of its input that may change, with their names."""

    def __init__(self, backbone: nn.Module, encode: Any, batches: list[torch.Tensor], sizes: dict[int, str]) -> None:
        super().__init__()
        self.backbone, self.encode, self.batches, self.sizes = backbone, encode, batches, sizes
        self.name, self.inputs, self.output = _NAMES[encode]
        self.eval()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.encode(self.backbone, inputs)


def export_onnx(model: str | Path, folder: Path, *, int8: bool = False) -> dict[str, Any]:
    """Writes both towers as ONNX graphs in fp32 that compute L2-normalized embeddings, and checks them.

    The files have the names that transformers.js expects: `onnx/vision_model.onnx` and `onnx/text_model.onnx`, with
    the configuration, the tokenizer and the image processor next to them. ONNX Runtime runs each graph on images and
    captions of the sandbox, in batches and lengths other than those of the export.

    Args:
        model: Hub id or folder of a dual encoder.
        folder: Output folder. Created if missing; replaced if an earlier conversion wrote it.
        int8: Whether to write `*_quantized.onnx` too, with weights and matrix products in 8 bits.

    Returns:
        The content of `conversion.json`, with the results of the checks by file.

    Raises:
        ImportError: Without onnx and onnxruntime, which `pip install "hfcomp[onnx]"` installs.
        ValueError: If the model is an adapter, images have no fixed size (NaFlex), a graph differs from PyTorch by
            more than rounding, or the folder contains other files.
    """
    if find_spec("onnx") is None or find_spec("onnxruntime") is None:
        raise ImportError("--to onnx needs ONNX Runtime: pip install 'hfcomp[onnx]'")
    check_folder(folder)
    backbone = load_plain(model, torch.float32)
    if family_of(backbone.config).image_inputs != ("pixel_values",):
        raise ValueError(
            f"{model}: the image tower of a {type(backbone).__name__} resizes its positions for each image, which a "
            "fixed graph cannot do. Use a model whose images have one size."
        )
    processor = load_processor(model, argument="model")
    # The embedder tries the model, to find one that has no embeddings.
    tokenizer = Embedder(backbone, processor, device="cpu").tokenizer
    bias = getattr(backbone, "logit_bias", torch.zeros(1))
    record = {
        "source": source_name(model),
        "layout": f"both towers of a {type(backbone).__name__} for ONNX Runtime",
        "similarity": {"scale": similarity_scale(backbone).item(), "bias": bias.item()},
        "texts": tokenizer.preparation + (", padded to full length" if tokenizer.pad_to_full else ""),
        "onnx": {},
        "note": "" if tokenizer.tokenizer.is_fast else "transformers.js needs a tokenizer.json, which is missing",
        "versions": library_versions(),
    }
    with replacing_folder(folder) as part:
        (part / "onnx").mkdir()
        for tower in _towers(backbone, processor, tokenizer):
            path = part / "onnx" / f"{tower.name}.onnx"
            _export(tower, path)
            record["onnx"][tower.name] = _compare(model, tower, path)
            if int8:
                record["onnx"][f"{tower.name}_quantized"] = _quantize(tower, path)
        processor.tokenizer.model_max_length = tokenizer.max_length  # some tokenizers give none, or another one
        processor.image_processor.save_pretrained(part)  # a file of its own, as transformers.js expects it
        processor.save_pretrained(part)
        backbone.config.save_pretrained(part)
        write_json(part / RECORD_FILE, record)
    return record


def _towers(backbone: nn.Module, processor: Any, tokenizer: TextTokenizer) -> tuple[_Tower, _Tower]:
    rows = list(retrieval_rows(4, 0))
    images = [decode_image(row["image"], where="sandbox") for row in rows]
    pixels = processor.image_processor(images, return_tensors="pt")["pixel_values"].float()
    # The last text is cut at the maximum; the first one by itself is short, if texts may be.
    ids, _ = tokenizer([*(row["caption"] for row in rows), " ".join(row["caption"] for row in rows * 100)])
    texts = [tokenizer.pad(part, tokenizer.length(part)) for part in (ids, ids[:1])]
    sizes = {0: "batch"} if tokenizer.pad_to_full else {0: "batch", 1: "length"}
    images = _Tower(backbone, encode_images, [pixels, pixels[:1]], {0: "batch"})
    return images, _Tower(backbone, encode_texts, texts, sizes)


def _export(tower: _Tower, path: Path) -> None:
    import onnx

    # Some image towers (TIPSv2, DINOv2) resize their positions to images of any size while they are traced.
    is_image = tower.encode is encode_images
    fixed = patch.object(torch.jit, "is_tracing", lambda: False) if is_image else nullcontext()
    with TemporaryDirectory(dir=path.parent) as scratch, warnings.catch_warnings(), torch.no_grad(), fixed:
        # Tracing warns of values that may become constants; `_compare` runs the graph with other sizes.
        warnings.simplefilter("ignore")
        file = Path(scratch) / path.name
        # The newer exporter (dynamo=True) needs onnxscript, and 6 to 19 seconds for a tower that takes this one 0.3.
        torch.onnx.export(
            tower,
            (tower.batches[0][:2],),
            str(file),
            dynamo=False,
            opset_version=17,  # the first with layer norms
            input_names=[tower.inputs],
            output_names=[tower.output],
            dynamic_axes={tower.inputs: tower.sizes, tower.output: {0: "batch"}},
        )
        # Above 2 GB, PyTorch writes one file per tensor. transformers.js expects all of them in one.
        is_large = len(list(Path(scratch).iterdir())) > 1
        external = {"save_as_external_data": True, "location": f"{path.name}_data"} if is_large else {}
        onnx.save_model(onnx.load(file), path, **external)


def _compare(model: str | Path, tower: _Tower, path: Path) -> dict[str, float]:
    single = _embed(tower)
    exact = _embed(tower.double())
    tower.float()
    difference = float(np.abs(_run(tower, path) - single).max())
    tolerance = _TOLERANCE * max(float(np.abs(single - exact).max()), float(np.finfo(np.float32).eps))
    if not difference <= tolerance:
        raise ValueError(
            f"{model}: embeddings of {path.name} differ from PyTorch's by {difference:.1e}, expected at most "
            f"{tolerance:.1e} (rounding). Nothing was written."
        )
    return {"largest_difference_from_pytorch": difference, "tolerance": tolerance}


def _embed(tower: _Tower) -> np.ndarray:
    with torch.inference_mode():
        return np.concatenate([tower(batch).numpy() for batch in tower.batches])


def _quantize(tower: _Tower, path: Path) -> dict[str, float]:
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    target = path.with_stem(f"{path.stem}_quantized")
    kinds = ["MatMul", "Gemm", "Gather"]  # a CPU has no convolution with signed 8-bit weights
    with TemporaryDirectory(dir=path.parent) as scratch:
        # Shape inference only, without which ONNX Runtime warns. One file must not have more than 2 GB.
        flags = ("skip_optimization", "skip_symbolic_shape", "save_as_external_data", "all_tensors_to_one_file")
        quant_pre_process(path, Path(scratch) / path.name, **dict.fromkeys(flags, True))
        quantize_dynamic(Path(scratch) / path.name, target, op_types_to_quantize=kinds, per_channel=True)
    return {"lowest_cosine_to_fp32": float((_run(tower, path) * _run(tower, target)).sum(-1).min())}


def _run(tower: _Tower, path: Path) -> np.ndarray:
    from onnxruntime import InferenceSession

    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {tower.inputs: batch.numpy()})[0] for batch in tower.batches])
