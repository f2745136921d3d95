"""What a look at data and models shows: galleries."""
