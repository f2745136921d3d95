"""Building blocks of the losses: chunked contrasts, precision, checks, and the pairs of a batch."""
