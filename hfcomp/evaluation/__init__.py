"""Evaluation of any dual encoder: embeddings once, outcomes per item, intervals that know which items share an image."""
