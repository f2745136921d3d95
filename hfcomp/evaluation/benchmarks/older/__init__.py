"""Sets that older papers report, to compare with them; none is in a suite."""
