"""Negative images: a diffusers image-to-image pipeline edits each image by its negative caption.

* `options`: options with their reasons.
* `editor`: a pipeline on one device; its output for an image does not depend on other images in the batch.
* `stage`: stages for `hfcomp.factory.runner.run_stages`, and the rules for setting edited images aside.
"""
