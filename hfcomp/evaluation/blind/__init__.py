"""What a benchmark gives away to a scorer that never sees an image.

* `rules`: scores of texts alone, the bigram model among them; `captions`: what it is counted on.
* `outcomes`: the rules on the items of benchmarks, and a model's own prior; `results`: their numbers and section.
* `folders`: written to folders of results, read from them, and those of several combined.
* `encoders`: encoders that look at nothing, as columns beside models.
"""
