"""The guard against overlap: which rows of a training set show images that an evaluation scores.

* `guard`: the comparison, by name, file, pixels and looks.
* `image_columns`: what images a dataset holds, and by what name each is known for sure; names that may
  be of one photograph are equal by `hfcomp.data.image_ids.photograph_key`.
* `image_hashes`: hashes that identify photographs however they were saved, kept on disk.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
