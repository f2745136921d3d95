"""Internals shared by the trainers: gathering, logging, checks, callbacks, text features."""
