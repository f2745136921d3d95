"""Group score, as a module of `evaluate`."""
