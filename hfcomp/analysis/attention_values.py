"""The maps of one or two models as numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hfcomp.analysis.attention import TokenCosines, attention
from hfcomp.analysis.attention_figure import QUANTITIES, attention_maps
from hfcomp.writing import write_text

SCHEMA_VERSION = 1


def write_values(
    path: Path,
    found: Mapping[str, TokenCosines],
    *,
    models: Mapping[str, str],
    image: str,
    phrases: Sequence[str],
    temperature: float,
) -> None:
    """Writes the maps of each model, and of two their difference, as JSON.

    Args:
        path: of the file.
        found: by model.
        models: name to Hub id or folder.
        image: its name.
        phrases: as many as `found` has maps of each model.
        temperature: of the attention.
    """
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "image": image,
        "phrases": phrases,
        "temperature": temperature,
        "models": {
            name: {
                "path": models[name],
                "box": one.box,
                "pooled": one.pooled.tolist(),
                "cosine": one.tokens.tolist(),
                "attention": attention(one.tokens, temperature).tolist(),
                "truncated": one.truncated,
            }
            for name, one in found.items()
        },
    }
    if len(found) == 2:
        changes = {kind: attention_maps(found, quantity=kind, temperature=temperature).change for kind in QUANTITIES}
        content["difference"] = {
            "box": changes["cosine"][1],
            **{kind: values.tolist() for kind, (values, _) in changes.items()},
        }
    write_text(path, json.dumps(content) + "\n")
