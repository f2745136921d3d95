"""Models between a base and a model tuned from it: scores them point by point and chooses one."""
