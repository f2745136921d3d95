"""What goes to the Hub: cards of models, and the metrics as Spaces."""
