"""Benchmarks that the five papers brought, beside those of the field."""
