"""Images on their way to the accelerator.

* `transform`: resize and crop as the model's own processor does them, to 8-bit pixels; `direct`: by Pillow alone.
* `batch`: pixels that stay in main memory until the model asks for them.
* `reading`: values of rows to pixels, decoded or taken from a store.
* `store`, `store_writer`, `keys`: pixels that were decoded and resized once, in a memory-mapped file.
"""

from hfcomp.data.pixels.batch import PixelBatch
from hfcomp.data.pixels.transform import PixelTransform

__all__ = ["PixelBatch", "PixelTransform"]
