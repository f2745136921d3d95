"""Retrieval of images by captions and of captions by images."""
