"""Composition benchmarks: captions or images that differ in a word or its position."""
