"""Pixels for the accelerator.

* `transform`: resizes and crops like the model's own processor, to 8-bit pixels that stay in main memory until the
  model requests them.
* `processor`: the processor's own output, for models whose images need more than that.
* `store`, `store_writer`: pixels that were decoded and resized once, in a memory-mapped file; and a reader that
  decodes a row's images or takes them from the store.
"""

from hfcomp.data.pixels.processor import ProcessorInputs, choose_transform
from hfcomp.data.pixels.transform import PixelBatch, PixelTransform

__all__ = ["PixelBatch", "PixelTransform", "ProcessorInputs", "choose_transform"]
