"""Brittleness, as a module of `evaluate`."""
