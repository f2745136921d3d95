"""transformers' image processors that need only Pillow and NumPy, under their names since transformers 5.4.

Before, `CLIPImageProcessorPil` was `CLIPImageProcessor`, and so for every family.
"""

from typing import Any

import transformers


def __getattr__(name: str) -> Any:
    if not name.endswith("ImageProcessorPil"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(transformers, name, None) or getattr(transformers, name.removesuffix("Pil"))
