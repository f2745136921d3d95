"""Benchmarks, one small file each: where the items come from and how they are read."""
