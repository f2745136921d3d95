"""A finished run of a recipe in a folder, without a training."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_file

from hfcomp.modeling import OBJECTIVE_STATE_FILE
from hfcomp.run_folders import CONFIG_FILE, finish
from hfcomp.statistics.results import RESULTS_FILE, write_results
from hfcomp.trainers.stages import CHECKSUMS_FILE, write_checksums
from hfcomp.writing import write_text
from tests.hub.repositories import WRITE_TOKEN

CARD = """---
library_name: transformers
tags:
- hfcomp
---

# Mine

Trained on /home/somebody/data/pairs.

```python
AutoModel.from_pretrained("<this model's id or folder>")
```
"""


def finished_run(folder: Path, model: Path, *, state: bool = True) -> Path:
    """Writes it.

    Args:
        folder: of the run.
        model: which its method and its control are.
        state: whether the method has a state of its objective.
    """
    for name in ("method", "controls/plain"):
        shutil.copytree(model, folder / name)
    if state:
        save_file({"objective_state.margin": torch.ones(1)}, folder / "method" / OBJECTIVE_STATE_FILE)
    write_checksums(folder / "method")
    # of a Trainer: neither is ever sent
    (folder / "method" / "checkpoint-2").mkdir()
    torch.save({"hub_token": WRITE_TOKEN}, folder / "method" / "training_args.bin")
    write_text(folder / "README.md", CARD)
    write_text(folder / "method" / "README.md", CARD)
    given = {"dataset": "/home/somebody/data/pairs", "output_dir": str(folder), "push_to_hub": True, "seed": 1}
    write_text(folder / CONFIG_FILE, yaml.safe_dump(given))
    models = {"base": {"path": "/home/some body/base"}, "Mine": {"path": str(folder / "method")}}
    write_results(
        folder / RESULTS_FILE, {"models": models, "config": given, "notes": [f"{folder}/method is new"], "results": []}
    )
    finish(folder)
    return folder


SENT = {
    *("config.json", "model.safetensors", "processor_config.json", "tokenizer.json", "tokenizer_config.json"),
    *(OBJECTIVE_STATE_FILE, "README.md", CONFIG_FILE, RESULTS_FILE),
}
"""What goes to the Hub of such a run whose method is a CLIP."""
NOT_SENT = ["checkpoint-2", CHECKSUMS_FILE, "training_args.bin"]
