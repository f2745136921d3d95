"""Recall at k, as a module of `evaluate`."""
