"""Self-contained HTML pages that work offline: their frame and security policy, and parts that several pages share."""
