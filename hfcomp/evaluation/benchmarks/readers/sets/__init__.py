"""The files of single benchmarks, as their authors lay them out."""
