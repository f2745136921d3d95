"""Retrieval of images by their captions and of captions by their images."""
