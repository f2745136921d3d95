"""What goes to the Hub: built data sets, and the metrics as Spaces."""
