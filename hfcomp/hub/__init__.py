"""What goes to the Hub: built datasets, and the metrics as Spaces."""
