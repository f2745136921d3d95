"""Recall at k, as an `evaluate` module."""
