"""Third-party checkpoints: locates the file, reads its tensors without running code, and finds the model in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch

from hfcomp.modeling.weight_checks import COPY_AGAIN, OtherNetwork, read_tensors
from hfcomp.reading import may_be_hub_id, nearest, read_json

CONFIG_FILE, WEIGHTS_FILE = "open_clip_config.json", "open_clip_model.safetensors"
# In the order in which open_clip prefers them.
WEIGHTS_FILES = (WEIGHTS_FILE, "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")
ENDINGS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
# One tensor of the image tower per layout: a file with one of them contains a model.
MARKS = ("visual.conv1.weight", "visual.trunk.patch_embed.proj.weight")
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")


class _Number:
    """Replaces a numpy number in a pickle. Nothing reads the number, and numpy never sees the file's bytes."""

    def __init__(self, *_: Any) -> None: ...
    def __setstate__(self, _: Any) -> None: ...


# open_clip's schedule leaves one in the optimizer's state, as the learning rate (open_clip issue 998).
_NUMPY_NAMES = ("core.multiarray.scalar", "_core.multiarray.scalar", "dtype")
_NUMBERS: list[Any] = [(_Number, f"numpy.{name}") for name in _NUMPY_NAMES]


class Checkpoint(NamedTuple):
    """A model read from a file.

    Attributes:
        path: File with the weights.
        config: Content of `open_clip_config.json` next to it, if any.
        tensors: Tensors by their names in the layout, without the prefix.
        state: Key in the file under which the weights are stored; empty if they are at the top level.
        prefix: Prefix that was removed from their names.
        others: Names in the file that do not begin with the prefix, and entries next to the weights.
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
        source: File, folder or Hub id.
        state: Key of the weights to use if the file contains several, such as `state_dict_ema`.
        prefix: Name prefix of the model to use if the file contains several, such as `student.`.
    """
    path = find_file(source)
    config = path.parent / CONFIG_FILE
    content = _read(path)
    key, tensors = _weights_of(path, content, state)
    removed = _prefix_of(path, tensors, prefix)
    own = {name.removeprefix(removed): value for name, value in tensors.items() if name.startswith(removed)}
    others = [name for name in tensors if not name.startswith(removed)]
    if key:
        others += [name for name in content if str(name) != key]
    settings = _settings(config) if config.is_file() else None
    return Checkpoint(path, settings, own, key, removed, tuple(sorted(map(str, others))))


def find_file(source: str) -> Path:
    """Locates the weights file of a source; downloads it if it is on the Hub."""
    path = Path(source)
    if path.is_file():
        return path
    if path.is_dir():
        return path / choose_weights((file.name for file in path.iterdir()), str(path))
    if not may_be_hub_id(source) or source.endswith(ENDINGS):
        raise ValueError(f"{source}: no such file or folder.")
    return _download(source)


def _download(name: str) -> Path:
    from huggingface_hub import HfApi, hf_hub_download

    files = HfApi().list_repo_files(name)
    # The configuration is stored in the snapshot folder of the weights, where `read_checkpoint` expects it.
    if CONFIG_FILE in files:
        hf_hub_download(name, CONFIG_FILE)
    return Path(hf_hub_download(name, choose_weights(files, name)))


def choose_weights(names: Iterable[str], source: str) -> str:
    """Chooses the weights file among the files of a folder."""
    candidates = sorted(name for name in names if name.endswith(ENDINGS) and "/" not in name)
    # If there are several files with other names, such as the epochs of a training run, the user must choose.
    own = next((name for name in WEIGHTS_FILES if name in candidates), None)
    if own is not None or len(candidates) == 1:
        return own or candidates[0]
    if not candidates:
        raise ValueError(
            f"{source}: found no weights; expected a file with one of the extensions {', '.join(ENDINGS)}."
        )
    raise ValueError(
        f"{source}: found several weights files: {', '.join(candidates)}. Pass the file to convert; if it is on the "
        "Hub, download it first."
    )


def _read(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".safetensors":
        return read_tensors(path)
    try:
        with torch.serialization.safe_globals(_NUMBERS):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        # torch names the class that it would have to import. Without a name, the bytes are probably not a pickle.
        kind = _GLOBAL.search(str(error))
        if kind is None and path.suffix not in ENDINGS:
            raise ValueError(
                f"{path}: expected a weights file with one of the extensions {', '.join(ENDINGS)}."
            ) from error
        if kind is None:
            raise ValueError(f"{path} is not a PyTorch checkpoint, or is damaged. {COPY_AGAIN}") from error
        raise ValueError(
            f"{path} contains {kind[1]} in addition to tensors, which cannot be read without running code from the "
            "file. Ask its author for safetensors. If you trust the author, load it yourself, without hfcomp, and "
            "save only the tensors: safetensors.torch.save_file(torch.load(path, weights_only=False)['state_dict'], "
            "...)."
        ) from error
    except OSError:
        raise
    except Exception as error:  # a damaged pickle may raise any error
        if "TorchScript" in str(error):
            raise ValueError(
                f"{path} is a TorchScript archive, like OpenAI's original CLIP files, and contains code. The same "
                "weights are on the Hub in transformers format, for example as openai/clip-vit-base-patch32."
            ) from error
        raise ValueError(f"{path}: the weights are damaged or truncated. {COPY_AGAIN}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: found a {type(content).__name__}, expected a mapping from names to tensors.")
    return content


def _settings(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("model_cfg"), dict):
        raise ValueError(f"{path}: the mapping model_cfg, which open_clip writes, is missing.")
    return content


def _weights_of(path: Path, content: Mapping[str, Any], wanted: str | None) -> tuple[str, dict[str, torch.Tensor]]:
    """Returns the key and the tensors of a file's weights, at the top level or under one of its keys."""
    # Training scripts save weights next to an optimizer's state, and often both raw and averaged weights.
    nested = {str(key): value for key, value in content.items() if isinstance(value, Mapping) and _prefixes(value)}
    if wanted is not None:
        if wanted not in nested:
            models = ", ".join(nested) or "none"
            raise ValueError(f"{path}: no model under {wanted!r}.{nearest(wanted, nested)} Models: {models}.")
        return wanted, _tensors(nested[wanted])
    if _prefixes(content):
        return "", _tensors(content)
    if len(nested) == 1:
        ((key, value),) = nested.items()
        return key, _tensors(value)
    if nested:
        models = ", ".join(nested)
        raise ValueError(
            f"{path} contains several models: {models}. Choose one, such as --state {next(iter(nested))}."
        )
    raise OtherNetwork(f"{path}: {_not_a_model(content)}")


def _tensors(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {str(name): value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _prefixes(state: Mapping[Any, Any]) -> list[str]:
    """Returns the name prefix of each model in a mapping."""
    names = [name for name, value in state.items() if isinstance(name, str) and isinstance(value, torch.Tensor)]
    return sorted({name.removesuffix(mark) for name in names for mark in MARKS if _ends(name, mark)})


def _ends(name: str, mark: str) -> bool:
    # The mark matches whole components of a name, as in `module.visual.conv1.weight`.
    return name == mark or name.endswith(f".{mark}")


def _prefix_of(path: Path, tensors: Mapping[str, torch.Tensor], wanted: str | None) -> str:
    prefixes = _prefixes(tensors)
    wanted = f"{wanted}." if wanted and not wanted.endswith(".") else wanted
    if wanted is not None and wanted not in prefixes:
        raise ValueError(f"{path}: no model with the prefix {wanted!r}. Model prefixes: {prefixes}.")
    # If all other prefixes begin with a model's prefix, it contains them, like a student that contains its teacher.
    first = prefixes[0] if wanted is None else wanted
    if wanted is None and not all(other.startswith(first) for other in prefixes):
        raise ValueError(
            f"{path} contains several models, with the prefixes {prefixes}. Choose one, such as --prefix {first!r}."
        )
    return first


def _not_a_model(content: Mapping[str, Any]) -> str:
    inner = [value for value in content.values() if isinstance(value, Mapping)]
    names = [str(name) for state in (content, *inner) for name in state]
    if any("vision_model." in name for name in names):
        return (
            "these are transformers weights, not open_clip weights. Load the folder with AutoModel, or convert it "
            "with --to open_clip."
        )
    towers = {"visual.trunk.": "timm", "visual.patch_embed.": "EVA-CLIP"}
    for mark, kind in towers.items():
        if any(mark in name for name in names):
            return f"its image tower comes from {kind} and is not SigLIP's; transformers has no CLIP with this tower."
    first = ", ".join(names[:5])
    return f"found no open_clip or OpenAI CLIP model ({MARKS[0]} is missing). The file contains {first or 'nothing'}."
