"""Models that are evaluated: what encodes images and texts, what is kept of it, and by what a model is known."""
