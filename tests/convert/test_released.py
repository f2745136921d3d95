"""Released checkpoints: random weights in the layout of each, converted as told, embed as the network of its code."""

from __future__ import annotations

import json
import re
import shlex

import huggingface_hub
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

from hfcomp import cli
from hfcomp.convert import ConversionOptions, convert_checkpoint
from hfcomp.evaluation.published.scores import Weights, published_models
from tests.convert import worlds
from tests.convert.test_convert import PLAIN, assert_same_embeddings
from tests.docs.snippets import ROOT

KNOWN = {name: model for name, model in published_models().items() if model.weights and model.weights.layout}
RELEASED = {name: m.weights for name, m in KNOWN.items() if m.weights.layout != "transformers"}
LORA = re.compile(r"(.*attn)\.(in_proj_weight)|(.*(?:out_proj|c_fc|c_proj|conv1))\.(weight)")


class Lora(nn.Module):
    """The change that TSVLC's layers add in each call: (B A) / rank, seen as a convolution's weight."""

    def __init__(self, down: torch.Tensor, up: torch.Tensor, rank: int):
        super().__init__()
        self.change = (up.double() @ down.double()) / rank

    def forward(self, weight):
        return (weight.double() + self.change.view(weight.shape)).float()


def add_lora(network: nn.Module, rank: int = 4) -> dict[str, torch.Tensor]:
    """Changes a network by LoRA; returns its former weights and the LoRA by their names in TSVLC's files."""
    weights, generator = worlds.state(network), torch.Generator().manual_seed(5)
    for name in list(weights):
        if (found := LORA.fullmatch(name)) is None:
            continue
        shape, (path, own) = weights[name].shape, filter(None, found.groups())
        kernel = shape[-1] if len(shape) == 4 else 1
        down = torch.randn(rank * kernel, shape[1] * kernel, generator=generator) * shape[1] ** -0.5
        up = torch.randn(shape[0] * kernel, rank * kernel, generator=generator)
        stem = f"{name}_lora_" if own == "in_proj_weight" else f"{path}.lora_"
        weights |= {f"{stem}A": down, f"{stem}B": up}
        register_parametrization(network.get_submodule(path), own, Lora(down, up, rank))
    return weights


def write_release(folder, weights: Weights, network: nn.Module, words: int) -> str:
    """Writes a file as the authors' code does, and returns its name. The scheduler's learning rate is numpy's."""
    if weights.layout == "open_clip":
        worlds.write_folder(folder, network, worlds.config(PLAIN, words))
        return "open_clip_model.safetensors"
    state = add_lora(network) if weights.layout == "lora" else worlds.state(network)
    optimizer = {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": np.float64(1e-6), "params": [0]}]}
    content = {"epoch": 5, "optimizer": optimizer, "scaler": {"scale": 65536.0}}
    if weights.layout == "model_state_dict":
        content = {"epoch": 9, "optimizer_state_dict": optimizer, "loss": torch.tensor(1.0), "model_state_dict": state}
    else:
        content["state_dict"] = {f"module.{name}": value for name, value in state.items()}
    folder.mkdir()
    torch.save(content, folder / (weights.file or "a.pt"))
    return weights.file or "a.pt"


@pytest.mark.follows("hfcomp/convert/released.py", "then run: hfcomp convert {weights.file or 'FILE'}{tag} --output")
@pytest.mark.parametrize("name", RELEASED)
def test_a_released_checkpoint_embeds_as_its_network(tmp_path, monkeypatch, old_clip, name):
    weights, words = RELEASED[name], worlds.vocabulary(old_clip)
    network = worlds.model(PLAIN, words)
    file = write_release(tmp_path / "files", weights, network, words)
    monkeypatch.chdir(tmp_path / "files")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda _, wanted: str(tmp_path / "files" / wanted))
    monkeypatch.setattr(
        huggingface_hub.HfApi, "list_repo_files", lambda *_: [path.name for path in tmp_path.glob("files/*")]
    )
    command = ["convert", name, "--output", str(tmp_path / "clip"), "--head_width", "64", "--processor", str(old_clip)]
    if not weights.hub:
        with pytest.raises(SystemExit, match=f"{re.escape(weights.at)}, then run: hfcomp convert") as told:
            cli.main(command)
        advised = shlex.split(str(told.value).partition("run: hfcomp ")[2].replace("FILE", file))
        command = [*advised, *command[-4:]]
    if weights.layout != "open_clip" and weights.pretrained is None:
        with pytest.raises(SystemExit, match="do not reveal the activation"):
            cli.main(command)
        command += ["--pretrained", "openai"]
    cli.main(command)
    model = assert_same_embeddings(tmp_path / "clip", network, PLAIN, old_clip)
    assert {model.config.text_config.hidden_act, model.config.vision_config.hidden_act} == {"quick_gelu"}
    record = json.loads((tmp_path / "clip" / "conversion.json").read_text())
    assert ("LoRA of rank 4 merged" in record["layout"]) == (weights.layout == "lora")
    assert weights.layout == "open_clip" or any(part.startswith("optimizer") for part in record["unused"])


def test_a_configuration_with_the_wrong_activation_is_found(tmp_path, monkeypatch, old_clip):
    words = worlds.vocabulary(old_clip)
    source = worlds.config(PLAIN, words, quick_gelu=False)
    folder = worlds.write_folder(tmp_path / "hub", worlds.model(PLAIN, words), source)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda _, wanted: str(folder / wanted))
    monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", lambda *_: [path.name for path in folder.iterdir()])
    with pytest.raises(ValueError, match=r"disagree.* gelu by open_clip_config.*quick_gelu by --pretrained openai"):
        convert_checkpoint("CLIC", tmp_path / "clip", ConversionOptions(processor=str(old_clip)))


def test_a_number_of_any_numpy_is_skipped(tmp_path, old_clip):
    weights = worlds.state(worlds.model(PLAIN, worlds.vocabulary(old_clip)))
    file, options = tmp_path / "a.pt", ConversionOptions(pretrained="openai", processor=str(old_clip), head_width=64)
    torch.save({"state_dict": weights, "lr": np.float64(1)}, file, _use_new_zipfile_serialization=False)
    for module in (b"numpy.core", b"numpy._core"):
        file.write_bytes(re.sub(rb"numpy\._?core", module, file.read_bytes()))
        assert convert_checkpoint(file, tmp_path / "clip", options)["unused"] == ["lr"]


@pytest.mark.follows("hfcomp/convert/released.py", "{name} needs no conversion: evaluate or train {place}.")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("READ-CLIP", "no conversion: evaluate or train Mayfull/READ-CLIP"),
        ("HierarCaps ViT-B/32", "no conversion: evaluate or train the folder from drive.google.com"),
        ("CLIP B/32", "no conversion: evaluate or train openai/clip-vit-base-patch32"),
        ("EVA02 ViT-L/14", r"hfcomp has no conversion for its weights \(huggingface.co/QuanSun/EVA-CLIP"),
        ("c2lip", "on request from the authors"),
    ],
)
def test_names_of_other_models_say_where_they_are(tmp_path, name, said):
    with pytest.raises(ValueError, match=said):
        convert_checkpoint(name, tmp_path / "clip")


def test_lora_that_fits_no_weight_is_not_left_out(tmp_path, old_clip):
    weights = add_lora(worlds.model(PLAIN, worlds.vocabulary(old_clip)))
    stem = "visual.transformer.resblocks.0.mlp.c_fc.lora_"
    (rank, inputs), (outputs, _) = weights[f"{stem}A"].shape, weights[f"{stem}B"].shape
    # Other sizes, no rank, transposed.
    shapes = (((rank, inputs), (3, rank)), ((0, inputs), (outputs, 0)), ((rank, outputs), (inputs, rank)))
    others = [{**weights, f"{stem}A": torch.ones(down), f"{stem}B": torch.ones(up)} for down, up in shapes]
    for changed in (*others, {name: value for name, value in weights.items() if name != f"{stem}B"}):
        torch.save(changed, tmp_path / "a.pt")
        with pytest.raises(ValueError, match="LoRA weights in another layout than TSVLC's, or damaged"):
            convert_checkpoint(tmp_path / "a.pt", tmp_path / "clip", ConversionOptions(pretrained="openai"))


def row(name: str) -> str:
    """A line of the table in docs/conversion.md."""
    model = KNOWN[name]
    weights, quoted = model.weights, f'"{name}"' if " " in name else name
    hub = weights.hub or "".join(model.hub)
    place = f"[{hub}](https://huggingface.co/{hub})" if hub else f"[Google Drive](https://{weights.at})"
    file = f", `{weights.file}`" if weights.file else ""
    tag = f" --pretrained {weights.pretrained}" if weights.pretrained else ""
    command = f"hfcomp convert {quoted if weights.hub else (weights.file or 'FILE') + tag}"
    in_config = weights.layout in ("open_clip", "transformers")
    if weights.layout == "transformers":
        command = f"hfcomp evaluate {hub or 'FOLDER'}"
    activation = "QuickGELU" if weights.pretrained == "openai" else "in its configuration" if in_config else "unknown"
    cells = (f"`{command}`", f"`{weights.layout}`", activation, weights.license or "none stated", weights.source)
    return f"| {name} | {place}{file} | {' | '.join(cells)} |"


def test_the_page_has_a_row_for_each():
    page = (ROOT / "docs" / "conversion.md").read_text()
    rows = [row(name) for name in sorted(KNOWN, key=str.casefold)]
    assert "\n".join(rows) in page, "the table should be:\n" + "\n".join(rows)
