"""Model cards, from one template, of runs of recipes and of models that a Trainer saves."""
