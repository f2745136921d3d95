"""What sentence-transformers has to know of a SigLIP to embed texts as it was trained.

By itself it pads a batch of texts to the longest one. A CLIP's text embedding is the same with and without padding; a
SigLIP's is not, as it attends to its padding and was trained on texts padded to its full length.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hfcomp.writing import write_text

KINDS = ("text", "image")
MODULES_FILE = "modules.json"
MODULE_CONFIG_FILE = "sentence_bert_config.json"
MODULES = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}]


def sentence_transformers_files(config: Any) -> dict[str, str]:
    """The content of the files by name, for sentence-transformers from version 6; none for a CLIP.

    Args:
        config: of the model.
    """
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
    """Writes them into the folder of a model.

    Args:
        folder: of the model.
        config: of the model.
    """
    for name, text in sentence_transformers_files(config).items():
        write_text(Path(folder) / name, text)
