"""Datasets that older papers report, for comparison; none is in a suite."""
