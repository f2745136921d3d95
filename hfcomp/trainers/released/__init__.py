"""Objectives as in their authors' released code, if it differs from the paper."""
