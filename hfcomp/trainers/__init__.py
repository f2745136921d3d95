"""One trainer per objective, all of them subclasses of `CompositionalTrainer`."""

from hfcomp._lazy import attach

__all__, __getattr__, __dir__ = attach(__name__)
