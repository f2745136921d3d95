"""What is drawn anew in each epoch: the order of negatives, one of several captions, a crop of the images."""
