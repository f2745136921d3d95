"""Evaluation of any dual encoder: embeddings once, outcomes per item, intervals that draw whole images."""
