"""Gallery of dataset rows: a page to search, sort and mark, and the dataset without the dropped rows."""
