"""Negatives of a training set: joined as columns when it is loaded, drawn anew in every epoch."""
