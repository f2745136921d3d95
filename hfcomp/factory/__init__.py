"""Builds datasets: stages over batches of columns, run shard by shard so that an interrupted build can resume.

* `runner`: runs stages over a dataset and writes Parquet files with a manifest; `executors`: run its shards.
* `builder`: describes a kind of dataset; `build`: makes a dataset in one build, `chain` in several; `cards`.
* `kinds`, `inpaintcoco`, `concretebatch`, `magic`: our kinds; `negatives`, `concepts`, `neighbors`: their stages.
* `writers`: language models that write captions, and checks of their answers.
* `images`: negative images, made by a diffusers pipeline.
"""
