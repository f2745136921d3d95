"""Image classification: zero-shot, linear probes, and several labels per image."""
