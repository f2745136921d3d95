"""The program behind every recipe: base, controls, method, evaluation, report."""
