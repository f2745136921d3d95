"""Blind baselines: what a benchmark gives away to a scorer that never sees an image.

* `rules`: scores of texts without images, including the bigram model; `captions`: the captions it counts.
* `outcomes`: the rules on the items of benchmarks, and a model's own prior; `results`: their numbers and section.
* `folders`: writes and reads them in result folders, and combines those of several folders.
* `encoders`: blind encoders, as columns next to models.
"""
