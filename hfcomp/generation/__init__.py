"""Making data sets: stages over batches of columns, run shard by shard so that an interrupted build can resume.

* `runner`: stages over a data set, into a folder of Parquet files with a manifest.
* `build`: the sets of `hfcomp build` from typed options: hard negatives, noun phrases, nearest images, ConcreteBatch.
* `text_negatives`, `text_concepts`, `text_targets`, `negative_captions`: their stages.
* `targets`, `concretebatch`: ConcretePlant's keywords, and the chain of builds that makes ConcreteBatch.
* `writers`: language models that write captions, and the checks of what they wrote.
* `images`: negative images by a pipeline of diffusers.
* `executors`: where shards are made.
"""
