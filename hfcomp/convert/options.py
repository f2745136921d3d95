"""Options of a conversion, shared by `hfcomp convert`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from hfcomp.options import Options


@dataclass(frozen=True)
class ConversionOptions(Options):
    """Information that a checkpoint lacks."""

    model: Annotated[str | None, "Name of the architecture in open_clip, such as ViT-B-32-quickgelu."] = None
    pretrained: Annotated[
        str | None,
        "open_clip's tag for the weights that training started from, such as openai or laion2b_s34b_b79k. It "
        "determines the activation and the preprocessing.",
    ] = None
    activation: Annotated[
        Literal["quick_gelu", "gelu", "gelu_pytorch_tanh"] | None,
        "Activation of both towers, if nothing else states it or what is stated is wrong.",
    ] = None
    head_width: Annotated[
        int | None,
        "Width of the image tower's attention heads, if neither a configuration nor the tower's width determines it.",
    ] = None
    state: Annotated[str | None, "Key of the weights to use if the file contains several, such as state_dict_ema."] = (
        None
    )
    prefix: Annotated[str | None, "Name prefix of the model to use if the file contains several, such as student."] = (
        None
    )
    processor: Annotated[
        str | None,
        "Folder or Hub id with the tokenizer that the model was trained with (default: the tokenizer next to the "
        "checkpoint, otherwise OpenAI's or Google's).",
    ] = None
