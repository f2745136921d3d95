"""A caption's concepts, with their positions and tokens, and chains of texts from general to specific."""
