"""Concept hierarchy as one HTML page (`hfcomp analyze magic`)."""
