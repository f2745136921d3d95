"""Pure NumPy metrics of embeddings and scores, from arrays to numbers."""
