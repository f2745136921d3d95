"""What the older benchmarks read with."""
