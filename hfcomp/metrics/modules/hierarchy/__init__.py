"""Hierarchy, as a module of `evaluate`."""
