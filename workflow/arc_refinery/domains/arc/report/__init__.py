"""The report of the domain `arc`: pictures of grids, and the results that were published."""
