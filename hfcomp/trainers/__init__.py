"""One trainer per objective, all of them subclasses of `CompositionalTrainer`."""
