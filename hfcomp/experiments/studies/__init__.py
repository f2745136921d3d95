"""Studies over several runs: sweeps, searches for values, and the plans that define them."""
