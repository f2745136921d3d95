"""Group score, as an `evaluate` module."""
