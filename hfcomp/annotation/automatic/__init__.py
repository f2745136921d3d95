"""The automatic mode: drafts of edits, made without a person, for people to review."""
