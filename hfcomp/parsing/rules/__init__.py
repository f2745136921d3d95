"""Rule-based caption parser that needs no download: textblob tags, then rules for units, clauses and heads."""
