"""Keyword ranking, as a module of `evaluate`."""
