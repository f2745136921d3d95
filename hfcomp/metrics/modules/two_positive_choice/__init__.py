"""Two-positive choice, as a module of `evaluate`."""
