"""Texts that say what a caption is about: its concepts, their places and tokens, chains from general to specific."""
