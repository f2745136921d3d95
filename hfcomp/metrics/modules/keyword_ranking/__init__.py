"""Keyword ranking, as an `evaluate` module."""
