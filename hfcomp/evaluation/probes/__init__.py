"""Linear probes on frozen features, one protocol a file: arrays in, a weight per class out."""
