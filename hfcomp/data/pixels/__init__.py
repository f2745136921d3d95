"""Images on their way to the accelerator.

* `transform`: resize and crop as the model's own processor does them, to 8-bit pixels that stay in main memory until
  the model asks for them.
* `store`, `store_writer`: pixels that were decoded and resized once, in a memory-mapped file, and values of rows to
  pixels, decoded or taken from there.
"""

from hfcomp.data.pixels.transform import PixelBatch, PixelTransform

__all__ = ["PixelBatch", "PixelTransform"]
