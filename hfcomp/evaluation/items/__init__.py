"""Single items: their thumbnails and scores for the page of a report, and their images for the overlap check."""
