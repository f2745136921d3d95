"""Scores of pairs of an image and a text, from models that read both together and from files of other systems."""
