"""ConcretePlant and ConcreteBatch (Concrete Jungle, section 2.2): pairs of negative caption and negative image."""
