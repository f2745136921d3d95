"""Third-party checkpoints: locates the file, reads its tensors without running code, and finds the model in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch

from hfcomp.modeling.weight_checks import COPY_AGAIN, read_tensors
from hfcomp.reading import may_be_hub_id, nearest, read_json

CONFIG_FILE, WEIGHTS_FILE = "open_clip_config.json", "open_clip_model.safetensors"
# In the order in which open_clip prefers them.
WEIGHTS_FILES = (WEIGHTS_FILE, "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")
ENDINGS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
# A tensor of the image tower of each layout: a file with one of them holds a model.
MARKS = ("visual.conv1.weight", "visual.trunk.patch_embed.proj.weight")
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")


class Checkpoint(NamedTuple):
    """A model as a file holds it.

    Attributes:
        path: File of the weights.
        config: Content of `open_clip_config.json` next to it, if any.
        tensors: Tensors by their names in the layout, without the prefix.
        state: Key of the file under which they lie. Empty if they are the file itself.
        prefix: What was removed from their names.
        others: Names in the file that do not begin with the prefix, and its entries next to the weights.
    """

    path: Path
    config: dict[str, Any] | None
    tensors: dict[str, torch.Tensor]
    state: str
    prefix: str
    others: tuple[str, ...]


def read_checkpoint(source: str, *, state: str | None = None, prefix: str | None = None) -> Checkpoint:
    """Reads a checkpoint from a file, a folder or the Hub.

    Args:
        source: file, folder or Hub id.
        state: Key of the weights to take if a file holds several, such as `state_dict_ema`.
        prefix: Beginning of the names of the model to take if a file holds several, such as `student.`.
    """
    path = find_file(source)
    config = path.parent / CONFIG_FILE
    content = _read(path)
    key, tensors = _weights_of(path, content, state)
    found = _prefix_of(path, tensors, prefix)
    own = {name.removeprefix(found): value for name, value in tensors.items() if name.startswith(found)}
    others = [name for name in tensors if not name.startswith(found)]
    if key:
        others += [name for name in content if name != key]
    settings = _settings(config) if config.is_file() else None
    return Checkpoint(path, settings, own, key, found, tuple(sorted(map(str, others))))


def find_file(source: str) -> Path:
    """The file of weights of a source, which is downloaded if it is on the Hub."""
    path = Path(source)
    if path.is_file():
        return path
    if path.is_dir():
        return path / _name_among((one.name for one in path.iterdir()), str(path))
    if not may_be_hub_id(source) or source.endswith(ENDINGS):
        raise ValueError(f"{source}: no such file or folder.")
    return _downloaded(source)


def _downloaded(name: str) -> Path:
    from huggingface_hub import HfApi, hf_hub_download

    files = HfApi().list_repo_files(name)
    # The configuration lands in the snapshot folder of the weights, where `read_checkpoint` looks for it.
    if CONFIG_FILE in files:
        hf_hub_download(name, CONFIG_FILE)
    return Path(hf_hub_download(name, _name_among(files, name)))


def _name_among(names: Iterable[str], shown: str) -> str:
    """The file of weights among the files of a folder."""
    found = sorted(name for name in names if name.endswith(ENDINGS) and "/" not in name)
    # Several files of other names, such as the epochs of a training run, are the user's choice.
    own = next((name for name in WEIGHTS_FILES if name in found), None)
    if own is not None or len(found) == 1:
        return own or found[0]
    if not found:
        raise ValueError(f"{shown}: found no weights, expected a file that ends in {', '.join(ENDINGS)}.")
    raise ValueError(f"{shown}: found {', '.join(found)}. Name the file to convert, downloaded if it is on the Hub.")


def _read(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".safetensors":
        return read_tensors(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        # torch names the class that it would have to import. Without a name the bytes are probably not a pickle.
        kind = _GLOBAL.search(str(error))
        if kind is None and path.suffix not in ENDINGS:
            raise ValueError(f"{path}: expected a file of weights that ends in {', '.join(ENDINGS)}.") from error
        if kind is None:
            raise ValueError(f"{path}: not a checkpoint of PyTorch, or damaged. {COPY_AGAIN}") from error
        raise ValueError(
            f"{path}: holds {kind[1]} beside its tensors, which cannot be read without running code of the file. Ask "
            "its author for safetensors. If you trust the author, load it yourself, without hfcomp, and save the "
            "tensors alone: safetensors.torch.save_file(torch.load(path, weights_only=False)['state_dict'], ...)."
        ) from error
    # A zip archive that was cut off raises the first, an empty file the second.
    except (RuntimeError, EOFError) as error:
        if "TorchScript" in str(error):
            raise ValueError(
                f"{path}: is a TorchScript archive, as OpenAI published CLIP, which holds code. The same weights are "
                "on the Hub as openai/clip-vit-base-patch32 and its like, ready for transformers."
            ) from error
        raise ValueError(f"{path}: the weights are damaged or truncated. {COPY_AGAIN}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: found a {type(content).__name__}, expected a mapping from names to tensors.")
    return content


def _settings(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("model_cfg"), dict):
        raise ValueError(f"{path}: found no mapping model_cfg, expected what open_clip writes.")
    return content


def _weights_of(path: Path, content: Mapping[str, Any], wanted: str | None) -> tuple[str, dict[str, torch.Tensor]]:
    """The key and the tensors of a file's weights: the file itself, or what lies under one of its keys."""
    # Training scripts save weights next to an optimizer's state and often twice, as they are and averaged.
    nested = {key: value for key, value in content.items() if isinstance(value, Mapping) and _prefixes(value)}
    if wanted is not None:
        if wanted not in nested:
            shown = ", ".join(map(str, nested)) or "none"
            raise ValueError(f"{path}: no model under {wanted!r}.{nearest(wanted, nested)} Models: {shown}.")
        return wanted, _tensors(nested[wanted])
    if _prefixes(content):
        return "", _tensors(content)
    if len(nested) == 1:
        ((key, value),) = nested.items()
        return key, _tensors(value)
    if nested:
        shown = ", ".join(nested)
        raise ValueError(f"{path}: holds several models: {shown}. Choose one: --state {next(iter(nested))}.")
    raise ValueError(f"{path}: {_not_a_model(content)}")


def _tensors(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {str(name): value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _prefixes(state: Mapping[Any, Any]) -> list[str]:
    """What the names of each model in a mapping begin with."""
    names = [name for name, value in state.items() if isinstance(name, str) and isinstance(value, torch.Tensor)]
    return sorted({name.removesuffix(mark) for name in names for mark in MARKS if _ends(name, mark)})


def _ends(name: str, mark: str) -> bool:
    # The mark consists of whole components of a name, as in `module.visual.conv1.weight`.
    return name == mark or name.endswith(f".{mark}")


def _prefix_of(path: Path, tensors: Mapping[str, torch.Tensor], wanted: str | None) -> str:
    found = _prefixes(tensors)
    wanted = f"{wanted}." if wanted and not wanted.endswith(".") else wanted
    if wanted is not None and wanted not in found:
        raise ValueError(f"{path}: no model under the prefix {wanted!r}. Prefixes of models: {found}.")
    # A model whose prefix all others begin with contains them, as a student contains its teacher.
    first = found[0] if wanted is None else wanted
    if wanted is None and not all(other.startswith(first) for other in found):
        raise ValueError(
            f"{path}: holds several models, whose names begin with {found}. Choose one, such as --prefix {first!r}."
        )
    return first


def _not_a_model(content: Mapping[str, Any]) -> str:
    inner = [value for value in content.values() if isinstance(value, Mapping)]
    names = [str(name) for state in (content, *inner) for name in state]
    if any("vision_model." in name for name in names):
        return (
            "these are weights of transformers, not of open_clip. Load the folder with AutoModel, or convert it with "
            "--to open_clip."
        )
    towers = {"visual.trunk.": "timm", "visual.patch_embed.": "EVA-CLIP"}
    for mark, kind in towers.items():
        if any(mark in name for name in names):
            return f"its image tower is of {kind} and not SigLIP's; transformers has no CLIP with it."
    shown = ", ".join(names[:5])
    return f"holds no CLIP of open_clip or OpenAI ({MARKS[0]} is missing). It has {shown or 'nothing'}."
