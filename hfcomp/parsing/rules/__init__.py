"""A grammar of captions that needs no download: tags by textblob, then units, clauses and heads by rules."""
