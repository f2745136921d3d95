"""Options of a conversion, those of `hfcomp convert`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from hfcomp.options import Options


@dataclass(frozen=True)
class ConversionOptions(Options):
    """What a checkpoint does not say."""

    model: Annotated[str | None, "open_clip's name of the architecture, such as ViT-B-32-quickgelu."] = None
    pretrained: Annotated[
        str | None,
        "open_clip's tag of the weights that training started from, such as openai or laion2b_s34b_b79k. It says the "
        "activation and the preprocessing.",
    ] = None
    activation: Annotated[
        Literal["quick_gelu", "gelu", "gelu_pytorch_tanh"] | None,
        "Activation of both towers, if nothing else says it or what says it is wrong.",
    ] = None
    head_width: Annotated[
        int | None,
        "Width of the image tower's attention heads, if neither a configuration nor the tower says it.",
    ] = None
    state: Annotated[
        str | None, "Key of the weights to take from a file that holds several, such as state_dict_ema."
    ] = None
    prefix: Annotated[
        str | None, "Prefix of the names of the model to take from a file that holds several, such as student."
    ] = None
    processor: Annotated[
        str | None,
        "Folder or Hub id whose tokenizer the model was trained with (default: the one beside the checkpoint, else "
        "OpenAI's, or Google's).",
    ] = None
