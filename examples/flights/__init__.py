"""`make demo`: a month (or the year) of New York's flights and weather, through the public HTTP interface only."""
