"""How a benchmark's items are scored, one protocol a file: embeddings in, outcomes per item out."""
