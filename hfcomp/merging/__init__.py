"""Models between a base and one that was tuned from it: scored point by point, and one of them chosen."""
