"""Benchmarks of composition: captions, or images, that differ in a word or its place."""
