"""Brittleness, as an `evaluate` module."""
