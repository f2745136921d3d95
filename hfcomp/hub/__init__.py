"""What goes to the Hub: cards of models, built data sets, and the metrics as Spaces."""
