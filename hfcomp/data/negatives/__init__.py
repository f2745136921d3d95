"""Negatives of a training set: joined as columns on loading, sampled in every epoch."""
