"""Published numbers of known models, with source and protocol, and their comparison with measured numbers."""
