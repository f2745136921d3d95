"""Publishing on the Hub: built datasets, trained models, and the metrics as Spaces."""
