"""Built datasets: their files and steps, views, checks, and builders of `datasets`."""
