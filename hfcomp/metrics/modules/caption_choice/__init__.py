"""Caption choice, as a module of `evaluate`."""
