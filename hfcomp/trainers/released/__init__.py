"""Objectives as their authors' code trains them, where that is not what their paper says."""
