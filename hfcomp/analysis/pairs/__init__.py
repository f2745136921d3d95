"""What hard negative pairs are like: concreteness, hardness, similarity, words (Concrete Jungle, section 3.1)."""
