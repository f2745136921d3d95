"""The pages of the documentation hold what they say."""
