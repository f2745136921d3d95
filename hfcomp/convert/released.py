"""Finds released checkpoints by the names that papers use, as in `hfcomp convert "FSC-CLIP on COCO"`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hfcomp.convert.options import ConversionOptions
from hfcomp.evaluation.published.scores import published_model, published_models


def find_released(source: str, folder: Path, options: ConversionOptions) -> tuple[str, ConversionOptions]:
    """Returns the file or Hub id of a released checkpoint, and the options for it. Leaves other sources unchanged.

    Args:
        source: Name of a published model, or a file, folder or Hub id.
        folder: Output folder, for the command in an error.
        options: Options from the user, which take precedence.

    Raises:
        ValueError: If the weights need no conversion, have none or are not on the Hub. The message says what to do.
    """
    name = None if Path(source).exists() else published_model(source)
    model = published_models()[name] if name else None
    if model is None or source in model.hub or not (model.hub or model.weights):
        return source, options
    weights = model.weights
    if weights is None or weights.layout == "transformers":
        place = model.hub[0] if weights is None or model.hub else f"the folder from {weights.at}"
        raise ValueError(f"{name} needs no conversion: evaluate or train {place}.")
    if not weights.layout:
        raise ValueError(f"{name}: hfcomp has no conversion for its weights ({weights.at}).")
    if weights.hub:
        from huggingface_hub import hf_hub_download

        path = hf_hub_download(weights.hub, weights.file) if weights.file else weights.hub
        return path, replace(options, pretrained=options.pretrained or weights.pretrained)
    tag = f" --pretrained {weights.pretrained}" if weights.pretrained else ""
    raise ValueError(
        f"{name}: its weights are not on the Hub. Download {weights.file or 'the file'} from {weights.at}, then run: "
        f"hfcomp convert {weights.file or 'FILE'}{tag} --output {folder}"
    )
