"""What several benchmarks read with: annotation files and sets of images."""
