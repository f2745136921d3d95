"""What the losses are built of: the chunked contrasts, precision, checks, and what a batch's pairs are."""
