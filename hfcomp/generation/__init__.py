"""Making data sets: stages over batches of columns, run shard by shard so that a killed build goes on where it was.

* `runner`: stages over a data set, into a folder of Parquet files with a manifest.
* `text_negatives`: hard negative captions from keywords, swaps and mask filling, filtered.
"""
