"""Evaluation of any dual encoder: embeddings once, outcomes per item, image-clustered bootstrap intervals."""

from hfcomp.evaluation.benchmarks.own import own_benchmark

__all__ = ["own_benchmark"]
