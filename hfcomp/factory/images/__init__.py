"""Negative images: each image edited by its negative caption with an image-to-image pipeline of diffusers.

* `options`: the settings, each with its reason.
* `editor`: a pipeline on one device, whose output for an image does not depend on the others of its batch.
* `stage`: the stages of `hfcomp.factory.runner.run_stages`, and which edited images are set aside.
"""
