"""What a benchmark gives away to a scorer that never sees an image.

* `rules`: scores of texts alone; `bigrams`: the language model among them; `captions`: what it is counted on.
* `outcomes`: the rules on the items of benchmarks, and a model's own prior; `results`: their numbers; `report`.
* `combined`: those of several folders of results.
* `encoders`: encoders that look at nothing, as columns beside models.
"""
