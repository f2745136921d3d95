"""Two-positive choice, as an `evaluate` module."""
