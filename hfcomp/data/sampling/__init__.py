"""Which rows a batch holds and what is drawn of them: by seed, epoch and row, the same on any number of processes."""
