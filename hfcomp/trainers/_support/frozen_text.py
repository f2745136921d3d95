"""A frozen copy of a model's text tower."""

from __future__ import annotations

import copy
import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hfcomp.data.tokenizing import TextTokenizer
from hfcomp.modeling import encode_texts
from hfcomp.writing import write_text

# Raised when the same model and text would give other features.
VERSION = 1
# A text whose features identify a run's copy in a checkpoint, and how far those of one copy may differ between two
# machines. The fingerprint will not do: new adapters, which change no feature, and library versions change it.
PROBE = "A red cube to the left of a small dog."
PROBE_FILE = "frozen_text.json"
PROBE_TOLERANCE = 1e-4
# Entries of configurations that change no feature.
ORIGIN = ("_name_or_path", "transformers_version", "dtype", "base_model_name_or_path", "peft_version", "revision")


class FrozenText:
    """A model's text tower as it is now, whatever is trained later. It encodes in float32, without dropout.

    Args:
        backbone: a `PreTrainedModel` or `PeftModel` with `vision_model` and a text tower; its text side is
            copied to the CPU.
        processor: the model's processor.
    """

    def __init__(self, backbone: nn.Module, processor: Any) -> None:
        self.tokenizer = TextTokenizer.from_processor(processor, backbone.config)
        plain = backbone.get_base_model() if hasattr(backbone, "peft_config") else backbone
        images = [part for name, part in plain.named_children() if name in ("vision_model", "visual_projection")]
        # what deepcopy finds among the copies that are made already, it takes as it is
        frozen = copy.deepcopy(backbone, {id(part): nn.Identity() for part in images})
        self.backbone = frozen.float().cpu().eval().requires_grad_(False)

    def to(self, device: torch.device | str) -> None:
        """Moves the copy."""
        self.backbone.to(device)

    def encode(self, texts: list[str]) -> torch.Tensor:
        """L2-normalised features `[n, D]` of texts, without autocast."""
        ids, _ = self.tokenizer(texts)
        device = next(self.backbone.parameters()).device
        padded = self.tokenizer.pad(ids, self.tokenizer.length(ids)).to(device)
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            return encode_texts(self.backbone, padded)

    def sign(self, folder: str | Path) -> None:
        """Writes into a checkpoint which copy its run has. The copy has to be on the CPU."""
        write_text(Path(folder) / PROBE_FILE, json.dumps(self.encode([PROBE])[0].tolist()))

    def check(self, folder: str | Path) -> None:
        """Compares this copy with that of a checkpoint's run; one without a record passes.

        Raises:
            ValueError: when they are copies of different models.
        """
        path = Path(folder) / PROBE_FILE
        if not path.is_file():
            return
        found, expected = self.encode([PROBE])[0], torch.tensor(json.loads(path.read_text()))
        if found.shape != expected.shape or not torch.allclose(found, expected, atol=PROBE_TOLERANCE, rtol=0):
            raise ValueError(
                f"the run of {folder} has text features of a different model. Pass the initial model of the run, not "
                "its checkpoint, and the checkpoint only as resume_from_checkpoint; or start a new run from these "
                "weights without resume_from_checkpoint."
            )

    @cached_property
    def fingerprint(self) -> bytes:
        """Identifies this copy: weights, configuration and tokenizer. The copy must be on the CPU."""
        facts = {"version": VERSION, "tokenizer": self.tokenizer.facts(), "model": _settings(self.backbone)}
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=_plain).encode())
        for name, weight in sorted(self.backbone.state_dict().items()):
            if "text_model" in name or "text_projection" in name:
                digest.update(f"{name} {list(weight.shape)}".encode())
                digest.update(weight.contiguous().view(-1).numpy())
        return digest.digest()


def _settings(backbone: nn.Module) -> dict[str, Any]:
    """What of a model's configurations may change a text's features."""
    adapters = {name: adapter.to_dict() for name, adapter in getattr(backbone, "peft_config", {}).items()}
    found = {"text": backbone.config.text_config.to_dict(), **adapters}
    kept = {name: {key: x for key, x in values.items() if key not in ORIGIN} for name, values in found.items()}
    return {**kept, "active": getattr(backbone, "active_adapter", None)}


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)
