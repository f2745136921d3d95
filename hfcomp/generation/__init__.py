"""Making data sets: stages over batches of columns, run shard by shard so that an interrupted build can resume.

* `runner`: stages over a data set, into a folder of Parquet files with a manifest.
* `build`: the sets of `hfcomp build` from typed options: hard negatives, noun phrases, nearest images.
* `text_negatives`, `text_concepts`: their stages.
* `targets`, `text_targets`: the words that ConcretePlant changes, the first step of its builds.
"""
