"""Studies over several runs: sweeps, searches for values, the study of concepts, and the plans that define them."""
