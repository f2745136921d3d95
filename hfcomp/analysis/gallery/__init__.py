"""Rows of a data set to look at: a picture of some, or a page of many that is searched, sorted and marked."""
