"""Rule-based caption grammar that needs no download: textblob tags, then rules for units, clauses and heads."""
