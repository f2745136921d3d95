"""Items one by one: their scores, their pictures for the page of a report, their images for the check of overlap."""
