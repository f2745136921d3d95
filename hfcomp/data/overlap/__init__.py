"""Overlap guard: finds rows of a training set that show images which an evaluation scores.

* `guard`: the comparison by name, file, pixels and look.
* `image_columns`: a dataset's image columns and the reliable names of its images; for names that may denote one
  photograph, `hfcomp.data.image_ids.photograph_key` returns the same key.
* `image_hashes`: hashes that identify photographs however they were saved, kept on disk.
"""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
