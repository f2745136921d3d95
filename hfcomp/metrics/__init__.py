"""Pure numpy metrics over embeddings and scores: arrays in, numbers out."""
