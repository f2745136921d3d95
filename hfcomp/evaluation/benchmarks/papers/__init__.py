"""Benchmarks from the five papers behind this library."""
