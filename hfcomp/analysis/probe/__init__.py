"""Share of the gradient on the hard negative, by batch size and margin, before any training."""
