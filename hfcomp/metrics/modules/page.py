"""Gradio page of a metric's Space: a JSON box per input, and the result.

`evaluate.utils.launch_gradio_widget` needs `gradio.inputs`, which Gradio removed in version 4.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hfcomp.metrics.modules import module_card


def page(module: Path, example: Mapping[str, Any]) -> Any:
    """Creates a Gradio interface to a metric; `launch()` serves it."""
    import evaluate
    import gradio

    def compute(*texts: str) -> dict[str, Any]:
        inputs = {}
        for name, text in zip(example, texts, strict=True):
            try:
                inputs[name] = json.loads(text)
            except json.JSONDecodeError as error:
                raise gradio.Error(f"{name}: not JSON, {error}.") from error
        # A metric keeps added rows until it is computed, so every visitor gets a separate instance.
        metric = evaluate.load(str(module), keep_in_memory=True)
        try:
            return metric.compute(**inputs)
        except (TypeError, ValueError) as error:
            raise gradio.Error(str(error)) from error

    return gradio.Interface(
        fn=compute,
        inputs=[gradio.Textbox(label=f"{name} (JSON)", value=json.dumps(value)) for name, value in example.items()],
        outputs=gradio.JSON(label="result"),
        title=module.stem.replace("_", " "),
        article=module_card(module.stem),
    )
