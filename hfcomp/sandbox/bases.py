"""Bundled base models of the sandbox: their folders and facts."""

import json
from pathlib import Path

ARCHITECTURES = ("clip", "siglip")
FACTS_FILE = "base.json"


def base_folder(architecture: str = "clip") -> Path:
    """Returns the folder of a base model, `clip` or `siglip`: a plain fp16 model with its processor."""
    if architecture not in ARCHITECTURES:
        raise ValueError(f"architecture: found {architecture!r}, expected one of {', '.join(ARCHITECTURES)}.")
    folder = Path(__file__).parent / "models" / architecture
    if not (folder / "model.safetensors").is_file():
        raise FileNotFoundError(f"{folder} contains no model. Reinstall hfcomp.")
    return folder


def base_facts(architecture: str = "clip") -> dict:
    """Returns how a base was trained: command, seed, settings, versions and cost."""
    return json.loads((base_folder(architecture) / FACTS_FILE).read_text())
