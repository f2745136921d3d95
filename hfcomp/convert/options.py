"""Options of a conversion; the fields are those of `hfcomp convert`, their descriptions its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ConversionOptions:
    """What a checkpoint does not say.

    Attributes:
        model: open_clip's name of the architecture, such as ViT-B-32-quickgelu.
        pretrained: open_clip's tag of the weights that training started from, such as openai or laion2b_s34b_b79k. It
            says the activation and the preprocessing.
        activation: of both towers, where nothing else says it or what says it is wrong.
        head_width: width of the image tower's attention heads, where neither a configuration nor the tower says it.
        state: key of the weights to take from a file that holds several, such as state_dict_ema.
        prefix: of the names of the model to take from a file that holds several, such as student.
        processor: folder or Hub id whose tokenizer the model was trained with (default: the one beside the checkpoint,
            else OpenAI's, or Google's).
    """

    model: str | None = None
    pretrained: str | None = None
    activation: Literal["quick_gelu", "gelu", "gelu_pytorch_tanh"] | None = None
    head_width: int | None = None
    state: str | None = None
    prefix: str | None = None
    processor: str | None = None
