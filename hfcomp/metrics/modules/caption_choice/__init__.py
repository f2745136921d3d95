"""Caption choice, as an `evaluate` module."""
