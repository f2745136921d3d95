"""Scoring protocols: embeddings in, outcomes per item out."""
