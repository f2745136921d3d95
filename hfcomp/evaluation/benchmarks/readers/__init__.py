"""Shared readers of annotation files and image sets."""
