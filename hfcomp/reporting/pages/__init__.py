"""HTML pages of one file, usable offline: their frame and policy, and parts that several of them show."""
