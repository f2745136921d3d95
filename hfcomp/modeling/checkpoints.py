"""Saves and loads trained encoders: the backbone or its adapter, and the objective's state in a file next to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import cached_file

from hfcomp.modeling.weight_checks import check_same, name_damaged_weights, read_tensors
from hfcomp.writing import replacing, write_text

KINDS = ("text", "image")
MODULES_FILE = "modules.json"
MODULE_CONFIG_FILE = "sentence_bert_config.json"
MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}]


def sentence_transformers_files(config: Any) -> dict[str, str]:
    """Returns the files for sentence-transformers 6 or later, as contents by name; none for CLIP."""
    if config.model_type != "siglip":
        return {}
    length = config.text_config.max_position_embeddings
    features = {kind: {"method": f"get_{kind}_features", "method_output_name": "pooler_output"} for kind in KINDS}
    settings = {
        "transformer_task": "feature-extraction",
        "modality_config": features,
        "module_output_name": "sentence_embedding",
        "processing_kwargs": {"text": {"padding": "max_length", "max_length": length}},
    }
    return {MODULES_FILE: json.dumps(MODULES, indent=2), MODULE_CONFIG_FILE: json.dumps(settings, indent=2)}


def write_sentence_transformers_files(folder: str | Path, config: Any) -> None:
    for name, text in sentence_transformers_files(config).items():
        write_text(Path(folder) / name, text)


OBJECTIVE_STATE_FILE = "objective_state.safetensors"
OBJECTIVE_PREFIX = "objective_state."  # prefix of the names of the objective's state
ADAPTER_FILE = "adapter_model.safetensors"
# Key in the adapter file's metadata for base-model parameters that were trained together with the adapter.
UNFROZEN = "hfcomp_unfrozen"


def is_peft(backbone: nn.Module) -> bool:
    return not isinstance(backbone, PreTrainedModel) and hasattr(backbone, "peft_config")


def extra_state(backbone: nn.Module, objective_state: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the state that the backbone's `save_pretrained` does not write: the objective's state.

    With PEFT, it also includes base-model parameters that were unfrozen by hand, such as `logit_scale`, because the
    adapter file does not contain them.
    """
    state = {f"{OBJECTIVE_PREFIX}{name}": value for name, value in objective_state.state_dict().items()}
    if is_peft(backbone):
        from peft import get_peft_model_state_dict

        adapter = get_peft_model_state_dict(backbone, adapter_name=backbone.active_adapter)
        # Compare memory addresses, because PEFT saves tensors under names that differ from the parameter names.
        saved = {value.data_ptr() for value in adapter.values()}
        for name, parameter in backbone.named_parameters():
            if parameter.requires_grad and parameter.data_ptr() not in saved:
                state[f"backbone.{name}"] = parameter.detach()
    return {name: value.detach().cpu().contiguous() for name, value in state.items()}


def save_encoder(backbone: nn.Module, objective_state: nn.Module, folder: str | Path, **kwargs: Any) -> None:
    """Writes the backbone or its adapter and, if there is any, the objective's state next to it."""
    kwargs.pop("state_dict", None)
    card = Path(folder) / "README.md"
    keep_card = card.exists() or not is_peft(backbone)
    backbone.save_pretrained(folder, **kwargs)
    if not keep_card:  # PEFT's template, in which every entry is "[More Information Needed]"
        card.unlink(missing_ok=True)
    if not kwargs.get("is_main_process", True):
        return
    if not is_peft(backbone):
        write_sentence_transformers_files(folder, backbone.config)
    state = extra_state(backbone, objective_state)
    if state:
        with replacing(Path(folder) / OBJECTIVE_STATE_FILE) as part:
            save_file(state, part, metadata={"format": "pt"})
        # Write this after the state: otherwise an interrupted save would record parameters that do not exist, and
        # loading would raise an error.
        _record_unfrozen(backbone, Path(folder), sorted(name for name in state if name.startswith("backbone.")))


def save_objective_state(source: str | Path, folder: Path) -> None:
    """Writes the objective's own state next to a merged model, if the adapter has such a state."""
    path = cached_file(str(source), OBJECTIVE_STATE_FILE, _raise_exceptions_for_missing_entries=False)
    stored = {} if path is None else read_tensors(path)
    # Unfrozen parameters of the adapter's base are already part of the merged weights.
    state = {name: value for name, value in stored.items() if name.startswith(OBJECTIVE_PREFIX)}
    if state:
        with replacing(folder / OBJECTIVE_STATE_FILE) as part:
            save_file(state, part, metadata={"format": "pt"})


def unfrozen_names(path: str | Path) -> set[str]:
    """Returns the base-model parameters that were trained together with an adapter, from its file's metadata."""
    with name_damaged_weights(path), safe_open(path, framework="pt") as file:
        return set(json.loads((file.metadata() or {}).get(UNFROZEN, "[]")))


def _record_unfrozen(backbone: nn.Module, folder: Path, names: list[str]) -> None:
    """Records in the adapter file what is saved next to it, so that a copy without that file can be detected."""
    if not is_peft(backbone):
        return
    adapter = backbone.active_adapter
    path = (folder if adapter == "default" else folder / adapter) / ADAPTER_FILE
    if names and path.is_file():
        # The tensors may be views of the file, so replace the file instead of overwriting it.
        with replacing(path) as part:
            save_file(load_file(path), part, metadata={"format": "pt", UNFROZEN: json.dumps(names)})


def load_encoder(backbone: nn.Module, objective_state: nn.Module, folder: str | Path) -> None:
    """Loads in place what [`save_encoder`] wrote; no key may be missing or left over.

    Raises:
        ValueError: If weights or the objective's state do not match. The message names the keys.
    """
    folder = Path(folder)
    if is_peft(backbone):
        _load_adapter(backbone, folder)
    else:
        _load_strictly(backbone, _read_weights(folder), folder)
    expected = extra_state(backbone, objective_state)
    path = folder / OBJECTIVE_STATE_FILE
    if not expected and not path.exists():
        return
    state = read_tensors(path) if path.exists() else {}
    if set(state) != set(expected):
        raise ValueError(
            f"{path}: found {sorted(state)}, but this objective expects {sorted(expected)}. "
            "Resume with the trainer that wrote the checkpoint."
        )
    check_same(path, state, expected)
    whole = nn.ModuleDict({"backbone": backbone, "objective_state": objective_state})
    # Names and shapes were compared above; strict would also require the backbone's other weights, which are already
    # loaded.
    whole.load_state_dict(state, strict=False)


def _load_adapter(backbone: nn.Module, folder: Path) -> None:
    from peft import get_peft_model_state_dict, load_peft_weights, set_peft_model_state_dict

    adapter = backbone.active_adapter
    # PEFT writes a named adapter into a folder of that name.
    folder = folder if adapter == "default" else folder / adapter
    with name_damaged_weights(folder):
        state = load_peft_weights(str(folder), device="cpu")
    check_same(folder, state, get_peft_model_state_dict(backbone, adapter_name=adapter))
    set_peft_model_state_dict(backbone, state, adapter_name=adapter)


def _read_weights(folder: Path) -> dict[str, torch.Tensor]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = set(json.loads(index.read_text())["weight_map"].values())
        return {key: value for name in sorted(names) for key, value in read_tensors(folder / name).items()}
    path = folder / "model.safetensors"
    if not path.exists():
        raise ValueError(f"{folder} has no model.safetensors; expected a folder saved by an hfcomp trainer.")
    return read_tensors(path)


def _load_strictly(model: nn.Module, state: dict[str, torch.Tensor], folder: Path) -> None:
    check_same(folder, state, model.state_dict())
    model.load_state_dict(state)
