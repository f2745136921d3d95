"""Model cards from one template, for recipe runs and for models that a Trainer saves."""
