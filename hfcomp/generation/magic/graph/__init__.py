"""The graph of concepts: merging, parents up to level 4, hard negatives, splits, and its file."""
