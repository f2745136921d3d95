"""ConcretePlant and ConcreteBatch (Concrete Jungle, section 2.2): pairs of a negative caption and a negative image."""
