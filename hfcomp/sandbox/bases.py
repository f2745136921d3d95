"""The sandbox's bundled base models: their folders and contents."""

import json
from pathlib import Path

ARCHITECTURES = ("clip", "siglip")
FACTS_FILE = "base.json"


def base_folder(architecture: str = "clip") -> Path:
    """The folder of a base model, `clip` or `siglip`: a plain model in fp16 with its processor."""
    if architecture not in ARCHITECTURES:
        raise ValueError(f"architecture={architecture!r}: the sandbox has {', '.join(ARCHITECTURES)}.")
    folder = Path(__file__).parent / "models" / architecture
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(f"{folder} has no model. Reinstall hfcomp.")
    return folder


def base_facts(architecture: str = "clip") -> dict:
    """How a base was made: the command, the seed, the settings, the versions, and its cost."""
    return json.loads((base_folder(architecture) / FACTS_FILE).read_text())
