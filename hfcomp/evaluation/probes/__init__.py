"""Linear probes on frozen features: arrays in, one weight vector per class out."""
