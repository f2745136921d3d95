"""Classes of images: zero-shot, linear probes and several labels an image."""
