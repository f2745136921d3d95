"""Objectives as in their authors' code, where it differs from the paper."""
