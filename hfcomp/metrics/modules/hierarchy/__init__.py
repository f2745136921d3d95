"""Hierarchy, as an `evaluate` module."""
