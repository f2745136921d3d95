"""From a data set of the Hub to batches: the column contract, images, collators and loading."""
