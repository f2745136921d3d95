"""Encoding with evaluated models: encoders of images and texts, the embedding cache, and model identities."""
