"""Sampling of rows, and of parts of rows, by seed, epoch and row: the same on any number of processes."""
