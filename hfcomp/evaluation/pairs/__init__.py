"""Scores of pairs of an image and a text: of models that read both together, and of files of any other system."""
