"""Rows of a dataset to look at: a picture of some, or a page of many that is searched, sorted and marked."""
