"""Analyzes hard negative pairs: concreteness, hardness, similarity, words (Concrete Jungle, section 3.1)."""
