"""Making datasets: stages over batches of columns, run shard by shard so that an interrupted build can resume.

* `runner`: stages over a dataset, into a folder of Parquet files with a manifest; `executors`: where shards are made.
* `builder`: what a kind of dataset is; `build`: from options to a dataset in one build, `chain` in several; `cards`.
* `kinds`, `inpaintcoco`, `concretebatch`, `magic`: our kinds; `negatives`, `concepts`, `neighbors`: their stages.
* `writers`: language models that write captions, and the checks of what they wrote.
* `images`: negative images by a diffusers pipeline.
"""
