"""The model card of a run: what was trained from what, its table, its cost, its caveat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCardData

USE = """```python
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("<this model's id or folder>")
processor = AutoProcessor.from_pretrained("<this model's id or folder>")
```"""


def write_card(folder: Path, *, report: str, facts: dict[str, Any]) -> None:
    """Writes `README.md` for the run and, the same text, for `method/`, so that pushing that folder brings its card.

    Args:
        folder: of the run.
        report: the text of `report.md`.
        facts: `method`, `config` (what the recipe and the command line set) and `hfcomp_version`.
    """
    config = facts["config"]
    model, dataset = config.get("model"), config.get("dataset")
    on_hub = [
        name for name in (model, dataset) if name and "/" in name and not Path(name).exists() and "$" not in name
    ]
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag="zero-shot-image-classification",
        tags=["hfcomp", "compositionality", facts["method"].lower()],
        base_model=model if model in on_hub else None,
        datasets=[dataset] if dataset in on_hub else None,
    )
    values = yaml.safe_dump(config, sort_keys=True, allow_unicode=True).strip()
    body = [
        f"---\n{data.to_yaml()}\n---",
        report.strip(),
        "## Use",
        "A plain model, without code of hfcomp:",
        USE,
        "## Training",
        f"Trained with hfcomp {facts['hfcomp_version']}; the recipe:",
        f"```yaml\n{values}\n```",
    ]
    for path in (folder / "README.md", folder / "method" / "README.md"):
        path.write_text("\n\n".join(body) + "\n")
