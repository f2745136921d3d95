"""Analyses of data and models."""
